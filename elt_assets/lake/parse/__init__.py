"""Staged lines → typed rows; what does not fit is salvaged, recorded or counted."""
