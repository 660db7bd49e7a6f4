"""Demo campaigns as package data; `warehouse.demo` puts them into an empty warehouse."""
