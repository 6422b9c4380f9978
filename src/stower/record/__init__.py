"""What engines were told and wrote, kept in files, and what is done with it."""
