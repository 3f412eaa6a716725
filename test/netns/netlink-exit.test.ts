/** A process ends with its own exit code, whatever the kernel still has to say to it. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { netnsMissing } from '../support/netns.ts'

const SOCKETS = join(import.meta.dirname, '../../kernel/route/netlink-socket.ts')

/** The notification comes when nothing runs any more but what runs at the end. */
const PROGRAM = `
  import { execFileSync } from 'node:child_process'
  import { watchMessages } from '${SOCKETS}'
  watchMessages({ groups: [1] }, () => undefined)
  process.on('exit', () => execFileSync('ip', ['link', 'set', 'lo', 'up']))
  process.exitCode = 7
`

t.test('a notification that nobody can take', { skip: netnsMissing() ?? false }, async (t) => {
  const node = [process.execPath, '--input-type=module', '--eval', PROGRAM]
  const { status, stderr } = spawnSync('unshare', ['--net', ...node], { encoding: 'utf8', timeout: 60_000 })
  t.equal(status, 7, stderr)
})
