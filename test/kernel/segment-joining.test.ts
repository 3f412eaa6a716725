import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { RunCommand } from '../../kernel/run-command.ts'
import { VethSegmentJoining } from '../../kernel/segment-joining.ts'
import { FakeClock } from '../../reconcile/fake-clock.ts'

const SIGNAL = new AbortController().signal
const CABLE = 'ip link add sealane0-tx mtu 65535 type veth peer name sealane0-rx mtu 65535 address 0a:5e:00:00:00:02'

const UP = [
  'ip link set sealane0-tx up',
  'ip link set sealane0-rx up',
  'ip address replace 169.254.0.1/32 dev sealane0-rx scope link',
  'ip neigh replace 169.254.0.1 lladdr 0a:5e:00:00:00:02 dev sealane0-tx nud permanent',
]

interface World {
  readonly root: string
  readonly clock: FakeClock
  readonly joining: VethSegmentJoining
  /** Tools that fail, with what they say. */
  readonly failing: Map<string, string>
  /** What was run since the last call. */
  readonly ran: () => string[]
  /** As `nft flush ruleset` does. */
  readonly flush: () => void
}

/** A folder that looks like /sys/class/net, and tools that change it as the real ones do. */
function world(t: Test, device: 'tun' | 'wireguard' = 'tun', hold = '0\n'): World {
  const root = t.testdir()
  const ran: string[] = []
  const failing = new Map<string, string>()
  let index = 1
  const add = (name: string, files: Readonly<Record<string, string>> = {}): void => {
    mkdirSync(join(root, name))
    index += 1
    for (const [file, text] of Object.entries({ ifindex: `${index}\n`, ...files }))
      writeFileSync(join(root, name, file), text)
  }
  add('sealane0', device === 'tun' ? { tun_flags: '0x5001\n' } : {})
  let hasChain = false
  const run: RunCommand = (tool, args, options = {}) => {
    const text = [tool, ...args].join(' ')
    ran.push(text)
    const says = failing.get(tool)
    if (says !== undefined) return Promise.resolve({ code: 1, stdout: '', stderr: `${says}\n` })
    if (text === CABLE) {
      add('sealane0-tx')
      add('sealane0-rx', { gro_flush_timeout: hold })
    }
    if (text === 'ip link del sealane0-tx')
      for (const end of ['tx', 'rx']) rmSync(join(root, `sealane0-${end}`), { recursive: true })
    if (text === 'nft -f -') hasChain = options.input?.includes('add chain') ?? false
    const isListed = !text.startsWith('nft list') || hasChain
    return Promise.resolve({ code: isListed ? 0 : 1, stdout: '', stderr: '' })
  }
  const clock = new FakeClock()
  const joining = new VethSegmentJoining({ root, clock, run })
  const flush = (): void => {
    hasChain = false
  }
  return { root, clock, joining, failing, ran: () => ran.splice(0), flush }
}

t.test('a user-space lane: a cable that joins, and TCP led over it; then nothing to do', async (t) => {
  const { root, joining, ran } = world(t)
  const { on, done } = await joining.join('sealane0', SIGNAL)
  t.ok(on)
  t.same(
    done.map((text) => text.split('\n')[0]),
    [
      CABLE,
      'ethtool -K sealane0-tx tso off',
      'ethtool -K sealane0-rx gro on',
      `echo 300000 > ${join(root, 'sealane0-rx', 'gro_flush_timeout')}`,
      'ip link set sealane0-tx addrgenmode none',
      'ip link set sealane0-rx addrgenmode none',
      ...UP,
      'nft -f -',
    ],
  )
  t.match(done.at(-1), 'add rule netdev sealane0 join ip protocol tcp fwd ip to 169.254.0.1 device "sealane0-tx"')
  t.equal(readFileSync(join(root, 'sealane0-rx', 'gro_flush_timeout'), 'utf8'), '300000')
  ran()
  t.same(await joining.join('sealane0', SIGNAL), { on: true, done: [] })
  t.same(ran(), [], 'no program is run in each round')
})

t.test('rules that somebody flushed come back', async (t) => {
  const { clock, joining, ran, flush } = world(t)
  await joining.join('sealane0', SIGNAL)
  ran()
  await clock.advance(30_000)
  t.same(await joining.join('sealane0', SIGNAL), { on: true, done: [] }, 'they are there')
  t.same(ran(), [...UP, 'nft list chain netdev sealane0 join'], 'a cable that was taken down is up again')
  flush()
  await clock.advance(30_000)
  t.match((await joining.join('sealane0', SIGNAL)).done, [/^nft -f -\nadd table/])
})

t.test('rules hang on the device that is there now', async (t) => {
  const { root, joining } = world(t)
  await joining.join('sealane0', SIGNAL)
  writeFileSync(join(root, 'sealane0', 'ifindex'), '99\n')
  t.match((await joining.join('sealane0', SIGNAL)).done, [/^nft -f -\nadd table/], 'made anew')
})

t.test("the kernel's own WireGuard joins by itself", async (t) => {
  const { joining, ran } = world(t, 'wireguard')
  t.same(await joining.join('sealane0', SIGNAL), { on: false, done: [] })
  t.same(ran(), [])
})

for (const { says, tool, error, hold } of [
  { says: 'no ethtool', tool: 'ethtool', error: 'no such program' },
  { says: 'a kernel without fwd', tool: 'nft', error: 'No such file or directory' },
  { says: 'a /sys that cannot be written', tool: 'none', error: 'gro_flush_timeout is read-only', hold: '100000\n' },
]) {
  t.test(`${says}: told once, and no half of a cable is left`, async (t) => {
    const { root, joining, failing, ran } = world(t, 'tun', hold)
    failing.set(tool, error)
    const { on, done, why } = await joining.join('sealane0', SIGNAL)
    t.same([on, done], [false, []])
    t.match(why, error)
    t.throws(() => readFileSync(join(root, 'sealane0-tx', 'ifindex')), { code: 'ENOENT' })
    ran()
    t.same(await joining.join('sealane0', SIGNAL), { on: false, done: [] }, 'and not tried again')
    t.same(ran(), [])
  })
}

t.test('what is not a lane any more loses its cable', async (t) => {
  const { joining, ran } = world(t)
  await joining.join('sealane0', SIGNAL)
  ran()
  t.same(await joining.sweep(['sealane0'], SIGNAL), [])
  t.same(ran(), [])
  await joining.sweep([], SIGNAL)
  t.same(ran(), ['nft -f -', 'ip link del sealane0-tx'])
  t.same(await joining.sweep([], SIGNAL), [])
})
