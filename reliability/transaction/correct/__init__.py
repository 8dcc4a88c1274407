"""What a person does about committed txids, and about txids that cannot be processed."""
