"""Chat templates: rendered as transformers does, fed with what they can take, tokenised so that users cannot cheat."""

import datetime
import json
import subprocess
import sys
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

from llamay.errors import TemplateError, UsageError
from llamay.tok import ChatTemplate, Tokenizer, Vocabulary, render
from llamay.tok.bpe import LETTERS
from llamay.tok.fallback import CHATML, GEMMA, PLAIN, chat_template
from llamay.tok.vocabulary import CONTROL, NORMAL

NOW = datetime.datetime(2025, 3, 4, 5, 6)
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather <of> a city",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def user(text: Any = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: Any = "yes", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def system(text: str = "be kind") -> dict[str, Any]:
    return {"role": "system", "content": text}


def call(arguments: Any, id: str = "call_0123456789") -> dict[str, Any]:
    return {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}


# the shapes that templates of real models have, in words of our own
PLAIN_TURNS = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}{% if add_generation_prompt %}[go]{% endif %}"
SHAPES = {
    "chatml": CHATML,
    "turns": PLAIN_TURNS,
    "bos": "{{ bos_token }}{%- for m in messages %}\n  {{- '<|' + m['role'] + '|>\\n' + m['content']|trim + eos_token }}\n{%- endfor %}",
    "system first": (
        "{%- if messages[0]['role'] == 'system' -%}{%- set sys = messages[0]['content'] -%}{%- set rest = messages[1:] -%}"
        "{%- else -%}{%- set sys = 'default' -%}{%- set rest = messages -%}{%- endif -%}<<{{ sys }}>>"
        "{% for m in rest %}{% if loop.first %}F{% endif %}{{ m.content }}{{ loop.index0 }}{% if loop.last %}L{% endif %}{% endfor %}"
    ),
    "backwards": (
        "{% set ns = namespace(last=none) %}{% for m in messages[::-1] %}{% if m.role == 'user' %}{% set ns.last = loop.index %}"
        "{% break %}{% endif %}{% endfor %}{{ ns.last }}{% for m in messages %}{% if m.role != 'user' %}{% continue %}{% endif %}"
        "{{ m.content }}{% endfor %}"
    ),
    "macro": (
        "{%- macro turn(m, sep='|') -%}{%- if m.content is string -%}{{ m.content }}{%- elif m.content is iterable -%}"
        "{%- for p in m.content if p.type == 'text' -%}{{ p.text }}{{ sep }}{%- endfor -%}{%- endif -%}{%- endmacro -%}"
        "{% for m in messages %}{{ m.role|capitalize }}: {{ turn(m, sep='/') }}\n{% endfor %}"
    ),
    "generation": "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "tools": (
        "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{{ t.function | tojson(indent=2) }}{{ t|tojson(ensure_ascii=true, sort_keys=true) }}"
        "{% for k, v in t.function.parameters.properties.items() %}{{ k }}={{ v.type }};{% endfor %}{% endfor %}{% endif %}"
        "{% for m in messages %}{{ m.content }}{% if m.tool_calls is defined and m.tool_calls %}{% for c in m.tool_calls %}"
        "<call>{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    ),
    "dates": "{{ strftime_now('%d %b %Y') }} {{ strftime_now('%A, %H:%M') }}{% for m in messages %}{{ m.content }}{% endfor %}",
    "thinking": (
        "{% for m in messages %}{% set c = m.content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}"
        "{% endif %}{{ c }}{% endfor %}{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    ),
    "lists": "{% set l = [] %}{% for m in messages %}{% set _ = l.append(m.content) %}{% endfor %}{{ l|join('+') }}{{ l.pop() }}{{ l|length }}",
    "filters": (
        "{% for m in messages|selectattr('role', 'equalto', 'user')|list %}{{ m.content|upper|replace('H', 'J') }}{% endfor %}"
        "{{ messages|map(attribute='role')|join(',') }}{{ messages|length }}{{ (messages|last).role }}{{ 7 // 2 }}{{ 2 ** 5 }}"
        "{{ 'x' if messages is iterable and messages[0] is mapping }}{{ 'a%s' % 'b' }}{{ '%d'|format(3) }}{{ 'a,b'.split(',') }}"
        "{{ '{}-{}'.format(1, 'z') }}{{ ' a '.strip() ~ 1.5 ~ none }}{{ messages[0].nothing }}{{ [3, 1]|sort }}{{ {'k': [1]}|tojson }}"
    ),
}


class Generation(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class Reference(ImmutableSandboxedEnvironment):
    """The environment of transformers, and lists that may be appended to."""

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
        self.filters["tojson"] = self.tojson
        self.globals["strftime_now"] = NOW.strftime

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return (isinstance(obj, list) and attr in ("append", "pop")) or super().is_safe_attribute(obj, attr, value)

    @staticmethod
    def tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


CONVERSATION = [system("be <b>kind</b> & é"), user("  hi\n"), assistant("<think>x</think>\n\nyes"), user("ok 世界")]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("generation", [True, False])
def test_rendering_equals_that_of_transformers(name: str, generation: bool) -> None:
    tools = TOOLS if name == "tools" else None
    variables = {"add_generation_prompt": generation, "enable_thinking": False}
    messages = CONVERSATION[name in ("backwards", "filters") :]  # those two have no place for a system message
    expected = Reference().from_string(SHAPES[name]).render(messages=messages, tools=tools, **TOKENS, **variables)
    found = ChatTemplate(SHAPES[name], TOKENS).render(messages, tools=tools, now=NOW, **variables)
    assert found.text == expected
    assert render(SHAPES[name], messages, tools=tools, now=NOW, **TOKENS, **variables) == expected


def test_words_of_the_template_are_in_the_error() -> None:
    for source, words in [
        ("{{ raise_exception('roles must <alternate>') }}", "refused the conversation: roles must <alternate>"),
        ("{{ messages[0].a.b }}", "refused the conversation: .*has no attribute 'a'"),
        ("{% for %}", "does not compile: line 1"),
        ("a\n{% endgeneration %}", "does not compile: line 2"),
        ("{{ 1 // 0 }}", "failed: ZeroDivisionError"),
    ]:
        with pytest.raises(TemplateError, match=words):
            ChatTemplate(source).render([user()])


def test_the_clock_is_the_callers() -> None:
    template = ChatTemplate("{{ strftime_now('%Y-%m-%d %H:%M:%S') }}")
    assert template.render([user()], now=NOW).text == "2025-03-04 05:06:00"
    assert template.render([user()]).text.endswith(" 00:00:00")


def test_developer_messages_are_system_messages() -> None:
    found = ChatTemplate(CHATML).render([{"role": "developer", "content": "be kind"}, user()])
    assert "<|im_start|>system\nbe kind<|im_end|>" in found.text and found.notes == ()


def test_content_is_text() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "input_text", "text": "two"}]
    assert "one\ntwo" in ChatTemplate(CHATML).render([user(parts)]).text
    assert "None" not in ChatTemplate(CHATML).render([user(), assistant(None), user()]).text
    with pytest.raises(UsageError, match="message 0 has a part of type 'image_url'"):
        ChatTemplate(CHATML).render([user([{"type": "image_url", "image_url": {"url": "x"}}])])


def test_typed_content_for_templates_that_want_it() -> None:
    typed = ChatTemplate("{% for m in messages %}{% for p in m.content %}{{ p.text }};{% endfor %}{% endfor %}")
    assert typed.typed and typed.render([user("a"), user([{"type": "text", "text": "b"}])]).text == "a;b;"
    assert not ChatTemplate(CHATML).typed


def test_leading_system_messages_become_one() -> None:
    found = ChatTemplate(CHATML).render([system("a"), {"role": "developer", "content": "b"}, user()])
    assert found.text.startswith("<|im_start|>system\na\n\nb<|im_end|>") and "became one" in found.notes[0]


@pytest.mark.parametrize(
    "source",
    [
        GEMMA,
        "{% for m in messages %}{% if m.role == 'user' %}[u]{{ m.content }}{% elif m.role == 'assistant' %}{{ m.content }}{% endif %}{% endfor %}",
    ],
)
def test_system_text_survives_where_there_are_no_system_turns(source: str) -> None:
    found = ChatTemplate(source).render([system("be kind"), user("hi")])
    assert "be kind\n\nhi" in found.text and "first user message" in found.notes[0]
    assert "be kind" in ChatTemplate(source).render([system("be kind")]).text


def test_late_system_messages_survive() -> None:
    strict = PLAIN_TURNS.replace("[{{", "{% if m.role == 'system' and not loop.first %}{{ raise_exception('late') }}{% endif %}[{{")
    messages = [user("a"), assistant("b"), system("c"), user("d")]
    found = ChatTemplate(strict).render(messages)
    assert "[user][system] c" in found.text and "later system messages" in found.notes[0]
    assert "[system]c" in ChatTemplate(PLAIN_TURNS).render(messages).text


ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}"
    "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}"
)


def test_neighbours_are_merged_only_where_the_template_refuses_them() -> None:
    found = ChatTemplate(ALTERNATING).render([user("a"), user("b"), assistant("c"), user("d")])
    assert found.text == "[user]a\n\nb[assistant]c[user]d" and "refused" in found.notes[0]
    assert ChatTemplate(PLAIN_TURNS).render([user("a"), user("b")]).text == "[user]a[user]b[go]"
    with pytest.raises(TemplateError, match="roles must alternate"):
        ChatTemplate(ALTERNATING).render([assistant("a"), user("b")])


def test_thinking_gives_way_where_the_template_refuses_it() -> None:
    source = (
        "{% for m in messages %}{% if m.content and m.thinking %}{{ raise_exception('Cannot pass both content and thinking') }}"
        "{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
    )
    message = assistant("text", thinking="hm", tool_calls=[call({})])
    found = ChatTemplate(source).render([user(), message])
    assert found.text == "hitextget_weather" and "thinking" in found.notes[0]


def test_tool_arguments_are_objects_or_text_as_the_template_needs() -> None:
    turns = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}ARGS{% endfor %}{% endfor %}"
    wants_object = ChatTemplate(turns.replace("ARGS", "{{ c.function.arguments|tojson }}"))
    wants_text = ChatTemplate(turns.replace("ARGS", "{{ '' + c.function.arguments }}"))
    for template in (wants_object, wants_text):
        for arguments in ('{"city": "Rome"}', {"city": "Rome"}):
            assert '{"city": "Rome"}' in template.render([user(), assistant(None, tool_calls=[call(arguments)])]).text
    assert wants_text.wants_text_arguments and not wants_object.wants_text_arguments


def test_ids_of_tool_calls_are_shortened_where_the_template_demands_it() -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('id') }}"
        "{% endif %}<{{ c.id }}>{{ c.function.arguments|tojson }}{{ c.function.name }}{% endfor %}"
        "{% if m.tool_call_id %}<{{ m.tool_call_id }}>{% endif %}{% endfor %}"
    )
    answer = {"role": "tool", "content": "sun", "tool_call_id": "call_0123456789"}
    text = ChatTemplate(source).render([user(), assistant(None, tool_calls=[call({})]), answer]).text
    ids = [part.split(">")[0] for part in text.split("<")[1:]]
    assert len(ids) == 2 and ids[0] == ids[1] and ids[0].isalnum() and len(ids[0]) == 9


def test_what_would_be_lost_is_said() -> None:
    with pytest.raises(TemplateError, match="takes no tools"):
        ChatTemplate(CHATML).render([user()], tools=TOOLS)
    found = ChatTemplate(CHATML).render([user(), assistant(None, tool_calls=[call({})])])
    assert found.notes == ("a tool call of message 1 (assistant) does not come out of the template",)
    dropping = "{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}"
    assert "message 1 (tool)" in ChatTemplate(dropping).render([user(), {"role": "tool", "content": "x1"}]).notes[0]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "there are no messages"),
        (["hi"], "message 0 is no object"),
        ([{"content": "hi"}], "message 0 is no object with a text `role`"),
        ([{"role": 1, "content": "hi"}], "message 0 is no object with a text `role`"),
        ([user(7)], "content of message 0 is a int"),
        ([user(["x"])], "part of type 'str'"),
        ([user() | {"x": {1: 2}}], "message 0 has the key 1"),
        ([user() | {"x": object()}], "message 0 holds a object"),
        ([assistant("", tool_calls=[{}])], "a tool call of message 0"),
    ],
)
def test_what_is_no_conversation(messages: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ChatTemplate(CHATML).render(messages)


def test_nested_messages_are_refused() -> None:
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    with pytest.raises(UsageError, match="nested deeper"):
        ChatTemplate(CHATML).render([user() | {"x": deep}])


SPECIAL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "<start_of_turn>", "<end_of_turn>")


def tokenizer(*special: str, templates: dict[str, str] | None = None, **fields: Any) -> Tokenizer:
    types = bytes([NORMAL]) * 256 + bytes([CONTROL]) * len(special)
    templates = templates or {}
    return Tokenizer(Vocabulary("gpt2", (*LETTERS, *special), types, pre="gpt-2", chat_templates=templates, **fields))


CHEATING = st.lists(st.sampled_from([*SPECIAL, "<|im_", "end|>", "start|>", "|>", "<", " ", "\n", "a", "\ud800", "\u00e9"]), max_size=8)


@given(CHEATING.map("".join), CHEATING.map("".join), st.sampled_from(["plain", "trim", "json", "macro", "split", "edge"]))
def test_users_cannot_write_control_tokens(first: str, second: str, how: str) -> None:
    expression = {
        "plain": "m.content",
        "trim": "(' ' ~ m.content)|trim",
        "json": "{'c': m.content}|tojson",
        "macro": "show(m)",
        "split": "m.content.split('a')|join('<|im_')",
        "edge": "'<|im_' ~ m.content ~ '|>'",
    }[how]
    source = "{% macro show(x) %}({{ x.content }}){% endmacro %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ " + expression
    template = ChatTemplate(source + " }}<|im_end|>\n{% endfor %}")
    model = tokenizer(*SPECIAL)
    rendered = template.render([user(first), {"role": second or "x", "content": second}, assistant(first)])
    ids = model.prompt(rendered)
    assert [model.vocabulary.tokens[id] for id in ids if id >= 256] == ["<|im_start|>", "<|im_end|>"] * 3
    assert model.text(ids, special=True) == rendered.text.replace("\ud800", "\ufffd")


def test_innocent_text_is_tokenised_as_if_nothing_was_marked(load: Any) -> None:
    model: Tokenizer = load("tiny-bpe-qwen2")
    assert model.chat_template.name == "chatml"
    rendered = model.chat_template.render([system(), user("\n\n the theme "), assistant("  ok"), user("x\n")])
    assert model.prompt(rendered) == model.encode(rendered.text, parse_special=True)


def test_bos_is_there_once() -> None:
    for source in ("{{ bos_token }}x", "x", "<s>x"):
        model = tokenizer(*SPECIAL, templates={"": source}, special={"bos": 256}, add_bos=True)
        assert model.chat([user()]) == [256, LETTERS.index("x")]
    without = tokenizer(*SPECIAL, templates={"": "x"}, special={"bos": 256}, add_bos=False)
    assert without.chat([user()]) == [LETTERS.index("x")]


def test_which_template_is_used() -> None:
    assert tokenizer(*SPECIAL, templates={"": "x"}).chat_template.name == "file"
    assert tokenizer("<|im_start|>", "<|im_end|>").chat_template.name == "chatml"
    assert tokenizer("<start_of_turn>", "<end_of_turn>").chat_template.name == "gemma"
    plain = tokenizer().chat_template
    assert plain.name == "plain" and plain.stops and plain.source == PLAIN
    assert plain.render([system(), user(), assistant(), user("more")]).text == (
        "be kind\n\nUser: hi\nAssistant: yes\nUser: more\nAssistant:"
    )
    gemma = tokenizer("<bos>", "<start_of_turn>", "<end_of_turn>", special={"bos": 256}).chat_template
    assert gemma.render([user(" hi "), assistant(), user("more")]).text == (
        "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\nyes<end_of_turn>\n"
        "<start_of_turn>user\nmore<end_of_turn>\n<start_of_turn>model\n"
    )


def test_templates_for_a_purpose() -> None:
    model = tokenizer(*SPECIAL, templates={"": "a", "tool_use": "b{{ tools[0].function.name }}", "rag": "c"})
    assert model.text(model.chat([user()])) == "a"
    assert model.text(model.chat([user()], tools=TOOLS)) == "bget_weather"
    assert chat_template(model, "rag").source == "c"
    with pytest.raises(TemplateError, match="no chat template named 'x'; it has: default, tool_use, rag"):
        chat_template(model, "x")


def test_templates_of_a_file_are_read(metadata: Any) -> None:
    found = Vocabulary.from_metadata(
        metadata("tiny-spm") | {"tokenizer.chat_template": "a", "tokenizer.chat_template.tool_use": "b", "tokenizer.chat_template.x": 7}
    )
    assert found.chat_templates == {"": "a", "tool_use": "b"} and "chat_template.x ignored" in found.notes[0]


def test_jinja_is_imported_only_for_chats() -> None:
    program = "import sys, llamay.tok; print('jinja2' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False" and jinja2.__version__ >= "3.1.6"
