"""The plugin file for OpenCode 1: hands its events to the hook client, and the briefing to the first system prompt."""

from __future__ import annotations

import json
from collections.abc import Sequence

_TEMPLATE = """\
// Written by `recalld install opencode`; `recalld uninstall opencode` removes it.
import { spawn } from "node:child_process"

const COMMAND = __COMMAND__
const LIMIT_MS = 2000
const WANTED = new Set(["session.created", "session.idle", "session.compacted", "session.deleted", "session.error"])

function tell(cwd, payload) {
  return new Promise((resolve) => {
    let out = ""
    let done = false
    const finish = () => { if (!done) { done = true; resolve(out) } }
    try {
      const child = spawn(COMMAND[0], COMMAND.slice(1), { cwd, stdio: ["pipe", "pipe", "ignore"] })
      const timer = setTimeout(() => { child.kill(); finish() }, LIMIT_MS)
      child.on("error", finish)
      child.on("close", () => { clearTimeout(timer); finish() })
      child.stdout.on("data", (part) => { out += part })
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify({ cwd, ...payload }))
    } catch { finish() }
  })
}

export const Recalld = async ({ directory }) => {
  const briefings = new Map()
  return {
    event: async ({ event }) => {
      if (!WANTED.has(event.type)) return
      const told = tell(directory, { plugin_hook: "event", event })
      if (event.type === "session.created") {
        const id = event.properties?.info?.id
        briefings.set(id, told.then((out) => { try { return JSON.parse(out).additionalContext } catch { return undefined } }))
      }
      await told
    },
    "chat.message": async (input, output) => {
      await tell(directory, { plugin_hook: "chat.message", input: { sessionID: input.sessionID, messageID: input.messageID },
        output: { parts: output.parts.filter((part) => part.type === "text" && !part.synthetic) } })
    },
    "tool.execute.after": async (input, output) => {
      void tell(directory, { plugin_hook: "tool.execute.after", input,
        output: { title: output.title, output: output.output, metadata: { exit: output.metadata?.exit } } })
    },
    "experimental.session.compacting": async (input) => {
      await tell(directory, { plugin_hook: "experimental.session.compacting", input })
    },
    "experimental.chat.system.transform": async (input, output) => {
      const text = await briefings.get(input.sessionID)
      if (text) output.system.push(text)
    },
  }
}
"""


def opencode_plugin(command: Sequence[str]) -> str:
    """The plugin's text for a hook client's command."""
    return _TEMPLATE.replace("__COMMAND__", json.dumps(list(command)))
