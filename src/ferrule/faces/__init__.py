"""Faces: where people and programs meet Ferrule. No face knows another."""
