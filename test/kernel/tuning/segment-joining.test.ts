import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { RunCommand } from '../../../kernel/run-command.ts'
import { VethSegmentJoining } from '../../../kernel/tuning/segment-joining.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const SIGNAL = new AbortController().signal
const CABLE = 'ip link add sealane0-tx mtu 65535 type veth peer name sealane0-rx mtu 65535 address 0a:5e:00:00:00:02'

const WHOLE = [
  'ethtool -K sealane0-tx tso off',
  'ethtool -K sealane0-rx gro on',
  'ip link set sealane0-tx addrgenmode none',
  'ip link set sealane0-rx addrgenmode none',
  'ip link set sealane0-tx up',
  'ip link set sealane0-rx up',
  'ip address replace 169.254.231.1/32 dev sealane0-rx scope link',
  'ip neigh replace 169.254.231.1 lladdr 0a:5e:00:00:00:02 dev sealane0-tx nud permanent',
]
const LIST = 'nft list chain netdev sealane0 join'

interface World {
  readonly root: string
  readonly clock: FakeClock
  readonly joining: VethSegmentJoining
  /** The tools that fail, with the function that makes their error. */
  readonly failing: Map<string, () => string>
  readonly run: RunCommand
  /** The commands that were run since the last call. */
  readonly ran: () => string[]
  /** Removes everything, as `nft flush ruleset` does. */
  readonly flush: () => void
}

/**
 * A folder that looks like /sys/class/net, and tools that change it as the real ones do. A `hold` of 00 also means 0,
 * but differs from the text that would be written, so a test sees a write even as root.
 */
function world(t: Test, device: 'tun' | 'wireguard' = 'tun', hold = '0\n'): World {
  const root = t.testdir()
  const ran: string[] = []
  const failing: World['failing'] = new Map()
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
    const fails = failing.get(tool)
    if (fails !== undefined) return Promise.resolve({ code: 1, stdout: '', stderr: `${fails()}\n` })
    if (text === CABLE) {
      add('sealane0-tx', { flags: '0x1002' })
      add('sealane0-rx', { flags: '0x1002', gro_flush_timeout: hold })
    }
    const up = /^ip link set (\S+) up$/.exec(text)?.[1]
    if (up !== undefined) writeFileSync(join(root, up, 'flags'), '0x1003\n')
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
  return { root, clock, joining, failing, run, ran: () => ran.splice(0), flush }
}

/** Does what a gateway does in each round, and returns every command that was run. */
async function round(joining: VethSegmentJoining): Promise<string[]> {
  const connected = await joining.connect('sealane0', SIGNAL)
  if (!connected.on) return [`off: ${connected.why ?? ''}`]
  const led = await joining.lead('sealane0', SIGNAL)
  return led.on ? [...connected.done, ...led.done] : [`off: ${led.why ?? ''}`]
}

const heads = (texts: readonly string[]): string[] => texts.map((text) => text.split('\n')[0] ?? '')

t.test('a user-space lane: a cable that joins, and TCP led over it; then nothing to do', async (t) => {
  const { root, joining, ran } = world(t)
  const done = await round(joining)
  const hold = join(root, 'sealane0-rx', 'gro_flush_timeout')
  const [tso, gro, ...rest] = WHOLE
  t.same(heads(done), [CABLE, tso, gro, `echo 300000 > ${hold}`, ...rest, 'nft -f -'])
  t.match(done.at(-1), 'add rule netdev sealane0 join ip protocol tcp fwd ip to 169.254.231.1 device "sealane0-tx"')
  t.equal(readFileSync(hold, 'utf8'), '300000')
  ran()
  t.same(await round(joining), [])
  t.same(ran(), [], 'no program is run in each round')
})

t.test('what somebody flushed or cleared comes back', async (t) => {
  const { clock, joining, ran, flush } = world(t)
  await round(joining)
  ran()
  await clock.advance(30_000)
  t.same(await round(joining), [], 'all is there')
  t.same(ran(), [...WHOLE, LIST])
  flush()
  await clock.advance(30_000)
  t.match(await round(joining), [/^nft -f -\nadd table/])
})

t.test('a cable that is taken down is up again in the next round', async (t) => {
  const { root, joining, ran } = world(t)
  await round(joining)
  ran()
  writeFileSync(join(root, 'sealane0-rx', 'flags'), '0x1002\n')
  await round(joining)
  t.same(ran(), WHOLE)
})

t.test('rules hang on the device that is there now', async (t) => {
  const { root, joining } = world(t)
  await round(joining)
  writeFileSync(join(root, 'sealane0', 'ifindex'), '99\n')
  t.match(await round(joining), [/^nft -f -\nadd table/], 'made anew')
})

t.test('a start that was cut short: the next process makes the cable whole before it leads', async (t) => {
  const { root, clock, joining, failing, ran, run } = world(t)
  const stop = new AbortController()
  failing.set('ethtool', () => {
    stop.abort(new Error('stopped'))
    return 'killed'
  })
  await t.rejects(joining.connect('sealane0', stop.signal))
  failing.clear()
  ran()
  await round(new VethSegmentJoining({ root, clock, run }))
  t.same(ran(), [...WHOLE, 'nft -f -'])
})

t.test("the kernel's own WireGuard joins by itself", async (t) => {
  const { joining, ran } = world(t, 'wireguard')
  t.same(await round(joining), ['off: '])
  t.same(ran(), [])
})

for (const { says, tool, error, hold } of [
  { says: 'no ethtool', tool: 'ethtool', error: 'no such program' },
  { says: 'a kernel without fwd', tool: 'nft', error: 'No such file or directory' },
  {
    says: 'a /sys that cannot be written',
    tool: 'none',
    error: 'gro_flush_timeout cannot be written',
    hold: '00\n',
  },
]) {
  t.test(`${says}: told once, no half of a cable is left, and tried again after a while`, async (t) => {
    const { root, clock, joining, failing, ran } = world(t, 'tun', hold)
    failing.set(tool, () => error)
    t.match(await round(joining), [new RegExp(`^off: .*${error}$`)])
    t.throws(() => readFileSync(join(root, 'sealane0-tx', 'ifindex')), { code: 'ENOENT' })
    ran()
    t.same(await round(joining), ['off: '], 'not told again')
    t.same(ran(), [])
    await clock.advance(300_000)
    failing.clear()
    if (hold === undefined) t.match(await round(joining), [CABLE], 'five minutes later')
  })
}

t.test('a device that goes while it is looked at is no reason to wait', async (t) => {
  const { root, joining, failing } = world(t)
  failing.set('ethtool', () => {
    rmSync(join(root, 'sealane0', 'tun_flags'))
    return 'no such device'
  })
  t.same(await round(joining), ['off: '])
  writeFileSync(join(root, 'sealane0', 'tun_flags'), '0x5001\n')
  failing.clear()
  t.ok((await round(joining)).length > 0)
})

t.test('what is not a lane any more loses its cable', async (t) => {
  const { joining, failing, ran } = world(t)
  await round(joining)
  ran()
  t.same(await joining.sweep(['sealane0'], SIGNAL), [])
  t.same(ran(), [])
  failing.set('ip', () => 'busy')
  await t.rejects(joining.sweep([], SIGNAL), { message: /ip link del sealane0-tx: busy/ })
  failing.clear()
  ran()
  await joining.sweep([], SIGNAL)
  t.same(ran(), ['nft list table netdev sealane0', 'ip link del sealane0-tx'], 'the rest, when it was cut short')
  t.same(await joining.sweep([], SIGNAL), [])
})
