"""From a name or a file to a model that is ready: on which device, with how many pages, in which language."""
