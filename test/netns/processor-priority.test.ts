/** The priority that a process gets that raises it, and the priority of the programs that it starts then. */
import { spawn } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { netnsMissing } from '../support/netns.ts'

const PROGRAM = join(import.meta.dirname, 'support/favoured-process.ts')
const AUTOGROUP = '/proc/self/autogroup'

t.test('with and without a session of its own', { skip: netnsMissing() ?? false }, async (t) => {
  const before = existsSync(AUTOGROUP) ? readFileSync(AUTOGROUP, 'utf8') : undefined
  for (const detached of [true, false]) {
    const child = spawn(process.execPath, [PROGRAM], { detached, stdio: ['ignore', 'pipe', 'inherit'] })
    const seen = JSON.parse(await text(child.stdout)) as Record<string, unknown>
    const say = detached ? 'as a service: ' : 'in a session of others: '
    t.same(seen['priority'], { nice: -10 }, `${say}it has what it asked for`)
    t.same(seen['threads'], [-10], `${say}each of its threads has it`)
    t.equal(seen['started'], -10, `${say}what it starts inherits it`)
    if (before === undefined) continue
    const nice = detached ? /nice -10$/ : /nice 0$/
    t.match(seen['otherSession'], nice, `${say}a program with a session of its own is favoured as this one is`)
    if (detached) t.match(seen['session'], nice, `${say}the kernel favours the whole session`)
    else t.equal(readFileSync(AUTOGROUP, 'utf8'), before, `${say}the session stays as it is`)
  }
})
