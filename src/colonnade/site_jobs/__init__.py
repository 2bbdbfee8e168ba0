"""Jobs between organisations with rows: one asks, all answer under masks, and every site ends with the whole model."""
