"""The loop: harvest, bench what carries the models' time and energy, measure them, compare."""
