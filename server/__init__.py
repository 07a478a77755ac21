"""The HTTP surface: a Falcon application on waitress that speaks OpenAI's, Anthropic's and Ollama's languages.

`app.build(site)` makes the application, `main.serve(...)` runs it.  A folder an API family; what they share lies here.
"""
