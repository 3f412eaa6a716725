import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t, { type Test } from 'tap'
import type { RunCommand } from '../../../kernel/run-command.ts'
import { EthtoolChecksumOffload, planOffload } from '../../../kernel/tuning/checksum-offload.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'

const SIGNAL = new AbortController().signal

t.test('known faults', async (t) => {
  const rows: readonly (readonly [release: string, drivers: readonly string[], isOff: boolean])[] = [
    ['6.18.44', ['virtio_net'], false],
    ['6.18.44', [], false],
    ['6.18.44', ['vmxnet3'], true],
    ['4.18.0-240.el8.x86_64', ['vmxnet3'], true],
    ['6.12.1', ['ixgbe', 'vmxnet3'], true],
    ['6.12.1', ['vmxnet'], false],
    ['5.4.0-150-generic', ['ena'], true],
    ['5.6.19', [], true],
    ['5.7.0', ['ena'], false],
    ['5.10.0-32-cloud-amd64', ['gve'], false],
    ['5.15.0-134-generic', ['mlx5_core'], false],
    ['10.0.1', [], false],
    ['4.19', [], true],
    ['', [], false],
    ['unknown', [], false],
    ['5', [], false],
  ]
  for (const [release, drivers, isOff] of rows) {
    const plan = planOffload('auto', { release, drivers })
    t.equal(plan.wanted, isOff ? 'off' : 'any', `${release} ${drivers.join()}`)
    for (const stated of ['on', 'off'] as const)
      t.strictSame(planOffload(stated, { release, drivers }), { wanted: stated }, 'what the operator states counts')
  }
  t.match(planOffload('auto', { release: '5.4.0', drivers: ['vmxnet3'] }), { fault: /vmxnet3.*; before Linux 5\.7/ })
})

t.test('the system never switches offload on by itself, whatever the machine says', async () => {
  fc.assert(
    fc.property(fc.string(), fc.array(fc.string()), (release, drivers) => {
      const plan = planOffload('auto', { release, drivers })
      return plan.wanted === 'any' || (plan.wanted === 'off' && plan.fault !== undefined)
    }),
  )
})

interface World {
  readonly root: string
  readonly clock: FakeClock
  readonly offload: EthtoolChecksumOffload
  readonly ran: () => string[]
  readonly state: { line: string; fails: string | undefined }
}

/** A folder that looks like /sys/class/net, and an ethtool that switches as the real one does. */
function world(t: Test): World {
  const root = t.testdir({ 'sealane-vx': { ifindex: '7\n' } })
  const ran: string[] = []
  const state: World['state'] = { line: '\ttx-checksum-ip-generic: on', fails: undefined }
  const run: RunCommand = (tool, args) => {
    ran.push([tool, ...args].join(' '))
    if (state.fails !== undefined) return Promise.resolve({ code: 1, stdout: '', stderr: `${state.fails}\n` })
    if (args[0] === '-K') state.line = `\ttx-checksum-ip-generic: ${args[3] ?? ''}`
    const stdout = `Features for sealane-vx:\ntx-checksumming: on\n\ttx-checksum-ipv4: off [fixed]\n${state.line}\n`
    return Promise.resolve({ code: 0, stdout, stderr: '' })
  }
  const clock = new FakeClock()
  const offload = new EthtoolChecksumOffload({ root, clock, run, release: '6.12.1' })
  return { root, clock, offload, ran: () => ran.splice(0), state }
}

const LOOK = 'ethtool -k sealane-vx'
const OFF = 'ethtool -K sealane-vx tx-checksum-ip-generic off'

t.test('it is switched once, and again if another program switches it back', async (t) => {
  const { root, clock, offload, ran, state } = world(t)
  const ensure = (): Promise<string | undefined> => offload.ensure('sealane-vx', 'off', SIGNAL)
  t.equal(await ensure(), OFF)
  t.strictSame(ran(), [LOOK, OFF])
  t.equal(await ensure(), undefined)
  t.strictSame(ran(), [], 'rounds in between start no program')
  state.line = '\ttx-checksum-ip-generic: on'
  clock.advance(30_000)
  t.equal(await ensure(), OFF)
  clock.advance(30_000)
  ran()
  t.equal(await ensure(), undefined)
  t.strictSame(ran(), [LOOK])
  state.line = '\ttx-checksum-ip-generic: on'
  writeFileSync(join(root, 'sealane-vx', 'ifindex'), '8\n')
  t.equal(await ensure(), OFF, 'a new device is looked at at once')
  t.equal(await offload.ensure('sealane-vx', 'on', SIGNAL), OFF.replace(/off$/, 'on'), 'and so is another setting')
})

t.test('failures are told until the next try', async (t) => {
  const rows: readonly (readonly [line: string, fails: string | undefined, message: RegExp])[] = [
    ['\ttx-checksum-ip-generic: on', 'no such device', /ethtool -k sealane-vx: .*no such device/],
    ['\ttx-checksum-ip-generic: on [fixed]', undefined, /tx-checksum-ip-generic off: .*the state is fixed/],
    ['', undefined, /sealane-vx has no tx-checksum-ip-generic/],
  ]
  for (const [line, fails, message] of rows) {
    const { clock, offload, ran, state } = world(t)
    Object.assign(state, { line, fails })
    const ensure = (): Promise<string | undefined> => offload.ensure('sealane-vx', 'off', SIGNAL)
    await t.rejects(ensure(), { message })
    ran()
    await t.rejects(ensure(), { message })
    t.strictSame(ran(), [], 'from memory')
    Object.assign(state, { line: '\ttx-checksum-ip-generic: on', fails: undefined })
    clock.advance(300_000)
    t.equal(await ensure(), OFF)
  }
})

t.test('the cards behind a device', async (t) => {
  const { root, offload } = world(t)
  const device = (name: string, driver: string | undefined, lower: readonly string[] = []): void => {
    mkdirSync(join(root, name, 'device'), { recursive: true })
    if (driver !== undefined) symlinkSync(`../../../bus/pci/drivers/${driver}`, join(root, name, 'device', 'driver'))
    for (const one of lower) symlinkSync(`../${one}`, join(root, name, `lower_${one}`))
  }
  device('ens192', 'vmxnet3')
  device('ens224', 'vmxnet3')
  device('eth1', 'ixgbe')
  device('bond0', undefined, ['ens192', 'eth1', 'ens224'])
  device('vlan10', undefined, ['bond0'])
  device('br0', undefined, ['vlan10'])
  device('loop0', undefined, ['loop1'])
  device('loop1', undefined, ['loop0'])
  const drivers = async (name: string): Promise<readonly string[]> => (await offload.machine(name)).drivers
  t.strictSame(await offload.machine('ens192'), { release: '6.12.1', drivers: ['vmxnet3'] })
  for (const name of ['bond0', 'vlan10', 'br0']) t.strictSame(await drivers(name), ['ixgbe', 'vmxnet3'], name)
  for (const name of ['loop0', 'none']) t.strictSame(await drivers(name), [], name)
})
