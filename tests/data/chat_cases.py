#!/usr/bin/env python3
# SPDX-FileCopyrightText: The kvant authors
# SPDX-License-Identifier: Apache-2.0

"""Writes chat_cases.json: templates, messages, and the texts that Jinja 2 makes of them.

Jinja 2 (3.1) runs as chat templates are run elsewhere: sandboxed, trim_blocks and lstrip_blocks on, loop
controls on, raise_exception defined, tojson without ASCII escapes. The templates are written for this
test: "chat" ones have the shape of the templates of known models, "micro" ones try single constructs.
"error" marks what Jinja 2 itself refuses. Usage: chat_cases.py > chat_cases.json
"""

import json
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Refused(Exception):
    pass


def refuse(message):
    raise Refused(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=["jinja2.ext.loopcontrols"])
    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent)
    env.globals["raise_exception"] = refuse
    return env


CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nBe helpful.<|im_end|>\\n' }}
{% endif %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\\n' }}
{% endif %}"""

# Tools, tool calls and runs of tool answers, as in the Qwen family.
TOOLED = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are an assistant.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are an assistant.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n' ~ tool_call.name ~ (tool_call.arguments | tojson) ~ '</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# Headers, a default date and the system text taken out of the list, as in the Llama 3 family.
HEADERS = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system text comes first -#}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: tools\\n" }}
{%- endif %}
{{- "Today: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("One tool call at a time") }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

# Renamed roles, strict alternation and content in parts, as in the Gemma family.
TURNS = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{ '<start_of_turn>model\\n' }}
{%- endif -%}
"""

# Thoughts cut out of earlier answers, found by a backward search with a namespace, as in Qwen 3.
THOUGHTS = """{%- set ns = namespace(searching=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.searching and message.role == "user" and message.content is string and not(message.content.startswith('<r>') and message.content.endswith('</r>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set thought = '' %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query and (loop.last or thought) %}
            {{- '[assistant]<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '[assistant]' + content }}
        {%- endif %}
    {%- else %}
        {{- '[' + message.role + ']' + content }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '[assistant]' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""

# Instructions in brackets, as in the Mistral family.
BRACKETS = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages if not message.role == "tool" %}
    {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
        {{- raise_exception("Roles must alternate") }}
    {%- endif %}
    {%- set ns.index = ns.index + 1 %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token }}
    {%- else %}
        {{- raise_exception("Only user, assistant and system roles, not " + message["role"]) }}
    {%- endif %}
{%- endfor %}
{{- '(' ~ (user_messages | length) ~ ')' }}
"""

TALK = [
    [{"role": "user", "content": "Hi"}],
    [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "\n What is 2+2?\t"},
     {"role": "assistant", "content": "<think>\nsum\n</think>\n\n4 "},
     {"role": "user", "content": "Gr\u00fc\u00dfe \u65e5\u672c \U0001f600 <|im_end|> {{ x }} 'q' \"d\""}],
    [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    [{"role": "user", "content": ""}, {"role": "user", "content": "twice"}],
    [{"role": "assistant", "content": "first"}],
    [{"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, {"role": "user", "content": "3"}],
]

MICRO = r"""
a{{ 1 }}b
{{ 'x' }}|{{ "y" }}|{{ 'a' 'b' }}|{{ 'it\'s\n\t\\ \x41 \u00e9 \101 \q' }}
{{ 1 + 2 * 3 - 4 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 6 / 3 }}
{{ 1.5 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.0001 }} {{ 123456.789 }} {{ 1e15 }} {{ -0.0 }} {{ 2.5e-7 }} {{ 100.0 }}
{{ 'a' ~ 1 ~ none ~ true ~ undefined_thing ~ 1.0 }}
{{ 'ab' * 3 }}{{ 2 * '-' }}{{ 'x' * -1 }}
{{ true }} {{ True }} {{ none }} {{ None }} {{ false }} {{ nothing }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ 'a' == 1 }} {{ none == none }} {{ x == y }} {{ x == none }}
{{ 1 in [1, 2] }} {{ 'a' in 'cat' }} {{ 'a' in {'a': 1} }} {{ 3 not in [1, 2] }} {{ not 1 in [1] }} {{ 'a' in undefined_thing }} {{ '' in 'a' }} {{ (1, 2) in [(1, 2)] }} {{ [1] == (1,) }}
{{ 1 and 2 }} {{ 0 or 'x' }} {{ 0 and 1 }} {{ '' or none }} {{ not '' }} {{ not not 1 }} {{ 1 or 2 and 0 }}
{{ 'a' if true else 'b' }} {{ 'a' if false else 'b' }} {{ 'a' if false }}| {{ 1 if 0 else 2 if 0 else 3 }}
{{ [1, 2, 3][0] }}{{ [1, 2, 3][-1] }}{{ [1, 2][5] }}{{ 'abc'[1] }}{{ 'abc'[-1] }}{{ 'a\u00e9\u65e5'[1] }}{{ {'a': {'b': 4}}.a.b }}{{ {'a': 5}['a'] }}{{ {'a': 5}.c }}{{ none.x }}{{ none['x'] }}{{ 'abc'.nope }}
{{ 'abcdef'[1:3] }} {{ 'abcdef'[:-1] }} {{ 'abcdef'[::2] }} {{ 'abcdef'[::-1] }} {{ 'abcdef'[4:1:-1] }} {{ 'abcdef'[-100:2] }} {{ 'abcdef'[2:100] }} {{ 'abcdef'[100:] }} {{ 'abcdef'[-3:] }} {{ '\u65e5\u672c\u8a9e'[1:] }} {{ 'abc'[5::-1] }} {{ 'abc'[:-9:-1] }} {{ 'abc'[-9::-1] }}|
{{ [1, 2, 3, 4][1:] | join(',') }} {{ [1, 2, 3, 4][::-2] | join(',') }} {{ (1, 2, 3)[1:] | tojson }} {{ [1, 2, 3][:0] | length }}
{{ [1] + [2, 3] | length }} {{ ([1] + [2, 3]) | length }}
{{ ' a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '\u3000\u00a0z\u2028' | trim }}|{{ 5 | trim }}
{{ 'aBc' | upper }}{{ 'aBc' | lower }}{{ 'aBC dE' | capitalize }}{{ 1 | upper }}
{{ 'abc' | length }}{{ [1, 2] | count }}{{ {'a': 1} | length }}{{ '\u65e5\u672c' | length }}{{ undefined_thing | length }}
{{ [1, 'a', none] | join('-') }}{{ 'abc' | join('.') }}{{ [{'n': 1}, {'n': 2}] | join(',', attribute='n') }}{{ [] | join('x') }}
{{ undefined_thing | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ none | default('d') }}{{ none | d('e', boolean=true) }}{{ x.y | default('n') if x is defined else 'u' }}
{{ {'a': [1, 2.5, true, none, 'q"\\\n\u00e9\u0001\x7f'], 'b': {}} | tojson }} {{ [] | tojson }} {{ 'x' | tojson }} {{ {'a': [], 'b': [1, {'c': 2}]} | tojson(indent=2) }}
{{ [3, 1] | first }}{{ [3, 1] | last }}{{ 'ab' | first }}{{ 'ab' | last }}{{ [] | first }}{{ [] | last }}{{ [1, 2] | reverse | list | tojson }}{{ 'abc' | reverse }}{{ 'ab' | list | tojson }}
{{ 3.9 | int }} {{ -3.9 | int }} {{ true | int }} {{ -3 | abs }} {{ -2.5 | abs }} {{ 1.0 | string }} {{ (12 | string) + 'x' }}
{{ 'a-b-c' | replace('-', '+') }} {{ 'a-b-c' | replace('-', '', 1) }} {{ 'aaa'.replace('aa', 'b') }} {{ 'a-b'.replace('-', '--', 5) }}
{{ [{'r': 'u', 'n': 1}, {'r': 's', 'n': 2}, {'n': 3}] | selectattr('r', 'equalto', 'u') | map(attribute='n') | join(',') }}|{{ [{'r': 'u'}, {'r': ''}] | rejectattr('r') | list | length }}|{{ [1, 2, 3] | select('odd') | join }}|{{ [0, 1, ''] | select | list | length }}|{{ [1, 2, 3] | reject('gt', 1) | join }}|{{ ['a', 'b'] | map('upper') | join }}|{{ [{'f': {'n': 'deep'}}] | map(attribute='f.n') | join }}|{{ [{'r': 1}, {}] | selectattr('r', 'defined') | list | length }}|{{ [{}, {'x': 2}] | map(attribute='x', default=7) | join(',') }}
{% for k, v in {'a': 1, 'b': 2} | items %}{{ k }}={{ v }};{% endfor %}{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1}.keys() | list | tojson }}{{ {'a': 1}.values() | list | tojson }}
{{ {'a': 1}.get('a') }}{{ {'a': 1}.get('b') }}{{ {'a': 1}.get('b', 7) }}{{ {'items': 1}['items'] }}
{{ ' x '.strip() }}|{{ 'xxyx'.strip('x') }}|{{ ' x'.lstrip() }}|{{ 'x '.rstrip() }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|{{ 'abc'.startswith('') }}|{{ '\u00e9xe\u0301'.strip('\u00e9') }}
{{ 'a,b,,c'.split(',') | tojson }} {{ ' a  b '.split() | tojson }} {{ 'a b c'.split(' ', 1) | tojson }} {{ 'a b c d'.split(none, 2) | tojson }} {{ 'a.b.c'.rsplit('.', 1) | tojson }} {{ ''.split(',') | tojson }} {{ ''.split() | tojson }} {{ 'abc'.split('x')[-1] }} {{ 'a,b'.split(',', maxsplit=0) | tojson }} {{ ' a b '.split(none, 1) | tojson }} {{ ' a b  '.split(none, 2) | tojson }}
{{ 'aXb'.upper() }}{{ 'aXb'.lower() }}{{ 'aX bC'.title() }}{{ "don't 2x".title() }}{{ 'aX bC'.capitalize() }}{{ '-'.join(['a', 'b']) }}{{ 'hello'.find('l') }}{{ 'hello'.find('z') }}{{ 'hello'.count('l') }}{{ 'aaa'.count('aa') }}{{ 'abc'.count('') }}{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.y'.removesuffix('.y') }}{{ 'x'.removesuffix('.y') }}{{ '\u65e5\u672c'.find('\u672c') }}
{{ 1 is defined }}{{ x is defined }}{{ x is undefined }}{{ none is none }}{{ 'a' is string }}{{ {} is mapping }}{{ [] is mapping }}{{ [] is sequence }}{{ 'a' is sequence }}{{ 1 is sequence }}{{ x is sequence }}{{ 1 is number }}{{ true is number }}{{ true is integer }}{{ 1 is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ 1 is boolean }}{{ 3 is odd }}{{ 3 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ x is iterable }}{{ 1 is iterable }}{{ [] is iterable }}{{ {} is iterable }}
{{ 1 is not defined }}{{ x is not none }}{{ 1 is eq 1 }}{{ 1 is equalto(2) }}{{ 2 is gt 1 }}{{ 2 is le 1 }}{{ 1 is in [1] }}{{ true is sameas true }}{{ 1 is sameas true }}{{ none is sameas none }}{{ true is true }}{{ 1 is true }}{{ 0 is false }}{{ range is callable }}{{ 1 is ne 2 }}{{ not x is defined }}{{ x is defined and 1 }}{{ x is not defined or 1 }}
{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for i in [] %}x{% else %}none{% endfor %}{% for i in [1] %}x{% else %}none{% endfor %}{% for i in nothing %}x{% else %}u{% endfor %}
{% for i in range(6) if i % 2 == 0 %}{{ i }}{{ loop.length }}{% else %}-{% endfor %}{% for i in range(3) if i > 5 %}{{ i }}{% else %}-{% endfor %}
{% for c in 'a\u00e9b' %}[{{ c }}]{% endfor %}{% for k in {'x': 1, 'y': 2} %}{{ k }}{% endfor %}{% for a, b in [[1, 2], (3, 4)] %}{{ a }}{{ b }}{% endfor %}
{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% endfor %}
{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}
{{ range(3) | join }} {{ range(1, 4) | join }} {{ range(10, 0, -3) | join(',') }} {{ range(0) | join }}|
{% set a = 1 %}{% set b, c = 2, 3 %}{% set d = (4, 5) %}{{ a }}{{ b }}{{ c }}{{ d[1] }}{% set e %}<{{ a }}>{% endset %}{{ e }}{{ e | length }}
{% set x = 1 %}{% for i in range(2) %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}
{% for i in range(3) %}{% if y is defined %}D{% endif %}{% set y = i %}{% endfor %}{{ y is defined }}
{% set ns = namespace(n=0, s='') %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% set ns.s = ns.s ~ i %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.zz is defined }}
{% set d = dict(a=1, b='x') %}{{ d.a }}{{ d.b }}{{ d | tojson }}{{ dict(d, c=3) | tojson }}{{ dict() | length }}{{ {'a': 1, 'a': 2} | tojson }}
{% macro m(a, b='B', c=a) %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m('x', c='y') }}{{ m() }}{{ m(b=1) }}
{% set top = 't' %}{% macro m(x) %}{{ top }}{{ x }}{{ other is defined }}{% endmacro %}{% for other in [1] %}{{ m(other) }}{% endfor %}{{ m('z') | upper }}
{% macro fact(n) %}{% if n <= 1 %}1{% else %}{{ n }}*{{ fact(n - 1) }}{% endif %}{% endmacro %}{{ fact(5) }}
{% if 0 %}a{% elif '' %}b{% elif [] %}c{% elif {} %}d{% elif none %}e{% else %}f{% endif %}{% if 1 %}g{% endif %}{% if 0 %}h{% endif %}
{% if true %}\n  x\n{% endif %}\ny
  {% if true %}\nx\n  {% endif %}\n  y {% if true %} z {% endif %}\n\nw
a \n {%- if true -%} \n b \n {%- endif -%} \n c
a\n  {{ 1 }}\n  {{- 2 }}\n  {{ 3 -}}  \n  b
  {%+ if true %}\n x{%+ endif %}\n{% if true +%}\n y\n{% endif +%}\nz
a {# comment #} b\n  {# c #}\n  d\n{#- e -#}\n f {#- g #} h
{# first #}\n  {% if true %}{# x #}  {% endif %}  {% if true %} q{% endif %}
  {% set a = 1 %}  {% set b = 2 %}\n  {{ a }}{% set c = 3 %}\n\t{% set d = 4 %}x
line\r\nnext\rlast\r\n{% if true %}\r\nok\r\n{% endif %}
{{ '}}' }}{{ "%}" }}{{ {'a': {'b': 1}}['a']['b'] }}{{{'a': 1}.a}}{{ '{#' }}
{ { } } {x} %} }} #} { {a
{{ -1 | abs }}{{ -(1 + 1) }}{{ - 1 - -1 }}{{ +1 }}{{ 2 - 1 }}{{ 3-1 }}
{{ (1, 2)[0] }}{{ (1,)[0] }}{{ ((1)) }}{{ [1, 2,] | length }}{{ {'a': 1,}.a }}{{ () | length }}
{{ [1, [2, [3]]][1][1][0] }}{{ 'abc'.upper()[0] }}{{ ('a' ~ 'b').upper() }}{{ ' a '.strip().upper() + 'x' }}{{ [' a ' | trim] | first }}
{{ 'a' + 'b' | upper }}{{ ('a' + 'b') | upper }}{{ 1 + 1 | string | length }}{{ 'a' ~ 'b' | upper ~ 'c' }}
{{ undefined_thing }}{% for x in undefined_thing %}a{% endfor %}{% if undefined_thing %}b{% endif %}{{ undefined_thing is defined }}{{ messages[99] is defined }}{{ messages[0].zip is defined }}
{{ undefined_thing.x }}
{{ undefined_thing['x'] }}
{{ undefined_thing + 1 }}
{{ 'a' + 1 }}
{{ 1 / 0 }}
{{ [] + () }}
{{ none + 'a' }}
{{ undefined_thing() }}
{{ 1 < 'a' }}
{{ 1 in 'abc' }}
{{ 1 | nofilter }}
{{ 1 is notest }}
{{ 'abc'.nomethod() }}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% set nothing.x = 1 %}
{% if %}{% endif %}
{% if 1 %}
{% endif %}
{% for x in %}{% endfor %}
{% unknown %}
{{ 1 + }}
{{ (1 }}
{{ 'abc }}
{{ 1
{# abc
{{ ] }}
{{ 1 2 }}
{{ a.1b }}
{{ 'a' | }}
{{ 'a' is }}
{% set = 1 %}
{% macro m() %}
{{ raise_exception('no: ' ~ 5) }}
{{ [1, 2].append(3) }}
{{ {}.update({}) }}
{{ tools }}{{ documents }}{{ add_generation_prompt }}{{ bos_token }}{{ eos_token }}{{ messages | length }}
{{ messages[0].role }}{{ messages[0]['content'] }}{{ messages | map(attribute='role') | join(',') }}{{ (messages | selectattr('role', '==', 'user') | list)[0].content }}{{ messages[-1].content[:2] }}{{ 'role' in messages[0] }}{{ messages | tojson }}
"""


def render(source, messages, prompt):
    try:
        text = environment().from_string(source).render(
            messages=messages, add_generation_prompt=prompt, bos_token="<s>", eos_token="</s>",
            tools=None, documents=None)
        text.encode("utf-8")
        return {"want": text}
    except Refused as refused:
        return {"refused": str(refused)}
    except (jinja2.TemplateError, TypeError, ZeroDivisionError, ValueError) as error:
        return {"error": type(error).__name__}


def main():
    templates = []
    for name, source in [("chatml", CHATML), ("tooled", TOOLED), ("headers", HEADERS), ("turns", TURNS),
                         ("thoughts", THOUGHTS), ("brackets", BRACKETS)]:
        cases = [dict(messages=messages, prompt=prompt, **render(source, messages, prompt))
                 for messages in TALK for prompt in (False, True)]
        templates.append({"name": name, "source": source, "cases": cases})
    for number, line in enumerate(MICRO.strip("\n").split("\n")):
        # In a line, \n and \r outside of strings stand for line breaks; strings have their own escapes.
        source = line
        if "\\n" in line and "'" not in line:
            source = line.replace("\\n", "\n").replace("\\t", "\t")
        source = source.replace("\\r", "\r").replace("\r\\n", "\r\n") if "\\r" in source else source
        cases = [dict(messages=TALK[0], prompt=True, **render(source, TALK[0], True))]
        templates.append({"name": f"micro_{number}", "source": source, "cases": cases})
    json.dump(templates, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
