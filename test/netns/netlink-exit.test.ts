/** A process is not ended by what the kernel has to say to it: neither while it is busy, nor when it ends itself. */
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

/** Some 250 notifications come while nobody reads: what a kernel's usual buffer holds is less. */
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
