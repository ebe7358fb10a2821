"""The page: a door for people who would rather look than read. Only here is gradio imported, when a page is served."""
