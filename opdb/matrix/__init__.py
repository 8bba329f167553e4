"""The run matrix: trainings of many models under many options, from one file."""
