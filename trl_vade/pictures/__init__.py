"""How pictures look: colours, markers, names at the curves, and SVG. The room does not know what is drawn."""
