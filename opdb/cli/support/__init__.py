"""What commands share: options, progress, tables on a terminal, files that are written."""
