"""The same measuring on several GPUs of one host, and as jobs of a cluster."""
