"""Studies around the database: questions about models that it answers beside time and energy."""
