/** Messages of the kernel do not end a process: neither while it is busy, nor when it ends itself. */
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { netnsMissing } from '../support/netns.ts'

const SOCKETS = join(import.meta.dirname, '../../kernel/route/netlink-socket.ts')

/** The notification arrives when only exit handlers still run. */
const PROGRAM = `
  import { execFileSync } from 'node:child_process'
  import { watchMessages } from '${SOCKETS}'
  watchMessages({ groups: [1] }, () => undefined)
  process.on('exit', () => execFileSync('ip', ['link', 'set', 'lo', 'up']))
  process.exitCode = 7
`

/**
 * About 250 notifications arrive while the process does not read, which is more than a kernel's default buffer holds.
 */
const BUSY = `
  import { execFileSync } from 'node:child_process'
  import { watchMessages } from '${SOCKETS}'
  let count = 0
  watchMessages({ groups: [1, 5, 7, 9] }, () => (count += 1))
  const flap = 'for i in $(seq 50); do ip link set lo down; ip link set lo up; done'
  execFileSync('sh', ['-c', flap])
  const isDone = () => (count >= 200 ? process.exit(7) : setImmediate(isDone))
  isDone()
`

t.test('many notifications at once', { skip: netnsMissing() ?? false }, async (t) => {
  const node = [process.execPath, '--input-type=module', '--eval', BUSY]
  const { status, stderr } = spawnSync('unshare', ['--net', ...node], { encoding: 'utf8', timeout: 60_000 })
  t.equal(status, 7, stderr)
})

t.test('a notification that nobody can take', { skip: netnsMissing() ?? false }, async (t) => {
  const node = [process.execPath, '--input-type=module', '--eval', PROGRAM]
  const { status, stderr } = spawnSync('unshare', ['--net', ...node], { encoding: 'utf8', timeout: 60_000 })
  t.equal(status, 7, stderr)
})
