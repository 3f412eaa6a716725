/** Which bridge ports of backends are put into hairpin mode, and set back. */
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { FakeSysctl } from '../../../kernel/fake/fake-sysctl.ts'
import {
  type BridgePort,
  type BridgePorts,
  SysfsBridgePorts,
  parseArp,
  parseForwarding,
} from '../../../kernel/tuning/bridge-ports.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { type ChangedPort, HairpinLoop, planHairpin, restoreHairpin } from '../../../routeagent/balance/hairpin.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { RESYNC_MS } from '../../../routeagent/world/config.ts'
import { routeAgentMetrics } from '../../../routeagent/world/metrics.ts'
import { eventually } from '../../support/eventually.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const [A, B] = ['10.42.1.5', '10.42.1.6'] as const
const off = (name: string, index = 1): BridgePort => ({ name, index, hairpin: false })
const on = (name: string, index = 1): BridgePort => ({ name, index, hairpin: true })
const ours = (address: string, port: string, index = 1): ChangedPort => ({ address, port, index })

interface Row {
  readonly local?: readonly string[]
  readonly behind?: Readonly<Record<string, BridgePort>>
  readonly before?: readonly ChangedPort[]
  /** `+p0` is put into the mode, `-p0` is set back. */
  readonly does: string
  readonly record: readonly ChangedPort[]
}

const ROWS: Readonly<Record<string, Row>> = {
  'a backend': { local: [A], behind: { [A]: off('p0') }, does: '+p0', record: [ours(A, 'p0')] },
  'a port that the CNI or the user has set': { local: [A], behind: { [A]: on('p0') }, does: '', record: [] },
  'a pod that is no backend': { behind: { [A]: off('p0') }, does: '', record: [] },
  'one that has said nothing yet': { local: [A], does: '', record: [] },
  'it is done': { local: [A], behind: { [A]: on('p0') }, before: [ours(A, 'p0')], does: '', record: [ours(A, 'p0')] },
  'it has been silent for long': { local: [A], before: [ours(A, 'p0')], does: '', record: [ours(A, 'p0')] },
  'no backend any more': { behind: { [A]: on('p0') }, before: [ours(A, 'p0')], does: '-p0', record: [] },
  'another program switched it off': {
    ...{ local: [A], behind: { [A]: off('p0') }, before: [ours(A, 'p0')] },
    ...{ does: '+p0', record: [ours(A, 'p0')] },
  },
  'the port was made again': {
    ...{ local: [A], behind: { [A]: off('p0', 2) }, before: [ours(A, 'p0')] },
    ...{ does: '+p0 -p0', record: [ours(A, 'p0', 2)] },
  },
  'the pod moved to another port': {
    ...{ local: [A], behind: { [A]: off('p1', 2) }, before: [ours(A, 'p0')] },
    ...{ does: '+p1 -p0', record: [ours(A, 'p1', 2)] },
  },
  'one of two backends behind a port goes': {
    ...{ local: [B], behind: { [B]: on('p0') }, before: [ours(A, 'p0'), ours(B, 'p0')] },
    ...{ does: '', record: [ours(B, 'p0')] },
  },
  'a second backend behind a port of ours': {
    ...{ local: [A, B], behind: { [A]: on('p0'), [B]: on('p0') }, before: [ours(A, 'p0')] },
    ...{ does: '', record: [ours(A, 'p0'), ours(B, 'p0')] },
  },
}

const plan = ({ local = [], behind = {}, before = [] }: Omit<Row, 'does' | 'record'>) =>
  planHairpin(new Set(local), new Map(Object.entries(behind)), before)

t.test('what is set, what is set back, and what is recorded', async (t) => {
  for (const [title, row] of Object.entries(ROWS)) {
    const { set, restore, record } = plan(row)
    const does = [...set.map((port) => `+${port}`), ...restore.map(({ port }) => `-${port}`)].join(' ')
    t.same([does, record], [row.does, row.record], title)
  }
})

t.test('any story of one boot: only what was set is set back, and in the end all is as it was', async () => {
  const ports = ['p0', 'p1', 'p2']
  const step = fc.record({
    local: fc.subarray<string>([A, B, '10.42.1.7']),
    known: fc.array(fc.tuple(fc.constantFrom(A, B, '10.42.1.7'), fc.constantFrom(...ports)), { maxLength: 3 }),
  })
  fc.assert(
    fc.property(fc.subarray(ports), fc.array(step, { maxLength: 8 }), (first, steps) => {
      const modes = new Map(ports.map((port) => [port, first.includes(port)]))
      let record: readonly ChangedPort[] = []
      for (const { local, known } of [...steps, { local: [], known: [] }]) {
        const behind = new Map<string, BridgePort>(
          known.map(([address, port]) => [address, { ...off(port), hairpin: modes.get(port) === true }]),
        )
        const next = planHairpin(new Set(local), behind, record)
        for (const port of next.set) modes.set(port, true)
        for (const { port } of next.restore) modes.set(port, false)
        if (local.some((address) => behind.has(address) && modes.get(behind.get(address)?.name ?? '') !== true))
          return false
        record = next.record
      }
      return record.length === 0 && ports.every((port) => modes.get(port) === first.includes(port))
    }),
  )
})

// struct __fdb_entry: two stations at port 1 and port 258, and the bridge's own address.
const TABLE = Buffer.from(
  '0a00000000050100000000000000000002000000000101010000000000000000' + '0a000000000602000000000001000000',
  'hex',
)
const ARP = `IP address       HW type     Flags       HW address            Mask     Device
10.42.1.5        0x1         0x2         0A:00:00:00:00:05     *        cni0
10.42.1.6        0x1         0x0         00:00:00:00:00:00     *        cni0
192.168.7.1      0x1         0x2         0a:00:00:00:00:05     *        eth0
`

t.test('the tables of the kernel', async (t) => {
  const whole = Buffer.concat([TABLE, Buffer.alloc(48 - TABLE.length)])
  t.same(parseForwarding(whole), [
    { mac: '0a:00:00:00:00:05', port: 1 },
    { mac: '0a:00:00:00:00:06', port: 258 },
  ])
  t.same(
    parseArp(ARP).map(({ address, mac, device }) => `${address} ${mac} ${device}`),
    ['10.42.1.5 0a:00:00:00:00:05 cni0', '192.168.7.1 0a:00:00:00:00:05 eth0'],
  )
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 100 }), fc.string(), (octets, text) => {
      parseForwarding(Buffer.from(octets))
      parseArp(text)
    }),
  )
})

t.test('ports of sysfs: a backend behind one, hardware left out, and the record of this boot alone', async (t) => {
  const root = temporaryFolder(t)
  const file = (path: string, text: string | Buffer): void => {
    mkdirSync(join(root, path, '..'), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const addPort = (name: string, number: number): void => {
    file(`${name}/brport/port_no`, `0x${number.toString(16)}\n`)
    file(`${name}/brport/hairpin_mode`, '0\n')
    file(`${name}/ifindex`, `${number + 10}\n`)
    mkdirSync(join(root, 'cni0/brif'), { recursive: true })
    symlinkSync(join(root, name), join(root, 'cni0/brif', name))
  }
  addPort('pod0', 1)
  file('cni0/brforward', TABLE.subarray(0, 32))
  file('arp', ARP)
  const driver = new SysfsBridgePorts(root, join(root, 'arp'))
  const port = { name: 'pod0', index: 11, hairpin: false }
  t.same([...(await driver.behind(new Set([A, B, '192.168.7.1'])))], [[A, port]])
  await driver.setHairpin('pod0', true)
  t.same(await driver.port('pod0'), { ...port, hairpin: true })
  await t.rejects(driver.setHairpin('nosuch', true), /bridge link set dev nosuch hairpin on: no such port/)
  const record = join(root, 'record')
  const sysctl = new FakeSysctl({ 'kernel/random/boot_id': 'b1' })
  const deps = { bridgePorts: driver, sysctl, logger: new CapturingLogger() }
  const mode = (): string => readFileSync(join(root, 'pod0/brport/hairpin_mode'), 'utf8').trim()
  for (const [boot, ports, want] of [
    ['b0', [ours(A, 'pod0', 11)], '1'],
    ['b1', [ours(A, 'pod0', 12)], '1'],
    ['b1', [{ ...ours(A, '../pod0', 11) }, 7, null], '1'],
    ['b1', [ours(A, 'pod0', 11)], '0'],
  ] as const) {
    writeFileSync(record, JSON.stringify({ boot, ports }))
    await restoreHairpin(deps, record)
    t.equal(mode(), want, `${boot} ${JSON.stringify(ports)}`)
  }
  mkdirSync(join(root, 'pod0/device'))
  t.same([...(await driver.behind(new Set([A])))], [], 'a network card: other machines are behind it')
})

t.test('a failure is tried again, and a record that cannot be read any more is the one last known', async (t) => {
  const file = join(temporaryFolder(t), 'record')
  const sysctl = new FakeSysctl({ 'kernel/random/boot_id': 'b1', 'net/bridge/bridge-nf-call-iptables': '1' })
  const modes = new Map([['p0', false]])
  let failures = 0
  const port = (name: string): BridgePort => ({ name, index: 1, hairpin: modes.get(name) === true })
  const bridgePorts: BridgePorts = {
    behind: (all) => Promise.resolve(new Map([...all].map((address) => [address, port('p0')]))),
    port: (name) => Promise.resolve(port(name)),
    setHairpin: (name, on) => {
      failures -= 1
      if (failures >= 0) return Promise.reject(new Error('busy'))
      modes.set(name, on)
      return Promise.resolve()
    },
  }
  const clock = new FakeClock()
  const logger = new CapturingLogger()
  let local = new Set([A])
  const metrics = routeAgentMetrics(createMetrics('routeagent'))
  const loop = new HairpinLoop({ bridgePorts, sysctl, clock, logger, metrics }, file, () => local)
  const stop = new AbortController()
  const running = loop.run(stop.signal)
  const becomes = (on: boolean): Promise<unknown> =>
    eventually(async () => {
      await clock.advance(10)
      return modes.get('p0') === on
    })
  await becomes(true)
  failures = 2
  local = new Set()
  loop.poke()
  await eventually(async () => (await clock.advance(10), failures < 2))
  // The disk does not give the record any more.
  rmSync(file)
  mkdirSync(file)
  const before = clock.monotonic()
  await becomes(false)
  t.ok(clock.monotonic() - before < RESYNC_MS, 'not only with the next full round')
  t.same(
    new Set(logger.lines.map(({ fields }) => fields['reason']).filter(Boolean)),
    new Set(['HairpinOff']),
    'told by its own reason alone',
  )
  stop.abort()
  await running
})

t.test('a backend that leaves while its port is looked for, and a record that is replaced as a whole', async (t) => {
  const file = join(temporaryFolder(t), 'record')
  const sysctl = new FakeSysctl({ 'kernel/random/boot_id': 'b1', 'net/bridge/bridge-nf-call-iptables': '1' })
  const modes = new Map([
    ['p0', false],
    ['p1', false],
  ])
  const port = (name: string): BridgePort => ({ name, index: 1, hairpin: modes.get(name) === true })
  let onLook = (): void => undefined
  const bridgePorts: BridgePorts = {
    behind: (all) => {
      onLook()
      return Promise.resolve(new Map([...all].map((address) => [address, port(address === A ? 'p0' : 'p1')])))
    },
    port: (name) => Promise.resolve(port(name)),
    setHairpin: (name, on) => Promise.resolve(void modes.set(name, on)),
  }
  const clock = new FakeClock()
  let local = new Set<string>()
  const [logger, metrics] = [new CapturingLogger(), routeAgentMetrics(createMetrics('routeagent'))]
  const loop = new HairpinLoop({ bridgePorts, sysctl, clock, logger, metrics }, file, () => local)
  const becomes = (backends: readonly string[]): void => {
    local = new Set(backends)
    loop.poke()
  }
  const stop = new AbortController()
  const running = loop.run(stop.signal)
  const set = (): string => [...modes].flatMap(([name, on]) => (on ? [name] : [])).join()
  const until = (want: string): Promise<unknown> =>
    eventually(async () => {
      await clock.advance(10)
      return set() === want
    })
  await clock.advance(1000)
  let looks = 0
  onLook = () => {
    looks += 1
    if (looks === 1) becomes([])
  }
  becomes([A])
  const before = clock.monotonic()
  await eventually(async () => (await clock.advance(10), looks > 0))
  await until('')
  await eventually(async () => (await clock.advance(10), looks > 1))
  t.ok(clock.monotonic() - before < RESYNC_MS, 'not only with the next full round')
  becomes([A])
  await until('p0')
  const old = openSync(file, 'r')
  becomes([A, B])
  await until('p0,p1')
  const text = readFileSync(old, 'utf8')
  t.ok(text.includes('"p0"') && !text.includes('"p1"'), 'the old one stays whole until the new one is')
  t.match(readFileSync(file, 'utf8'), '"p1"')
  closeSync(old)
  stop.abort()
  await running
})
