/** A routeagent on a machine whose network card computes wrong checksums. */
import t from 'tap'
import { KernelError } from '../../kernel/errors.ts'
import type { ChecksumOffload, OffloadMachine } from '../../kernel/tuning/checksum-offload.ts'
import type { Condition } from '../../model/objects.ts'
import { eventually } from '../support/eventually.ts'
import { Machine } from './support/machine.ts'

class Card implements ChecksumOffload {
  drivers: readonly string[] = ['vmxnet3']
  fails: string | undefined
  state = 'on'
  readonly asked: string[] = []

  machine(device: string): Promise<OffloadMachine> {
    return Promise.resolve({ release: '6.12.1', drivers: device === 'eth0' ? this.drivers : [] })
  }

  ensure(device: string, wanted: 'on' | 'off'): Promise<string | undefined> {
    this.asked.push(`${device} ${wanted}`)
    if (this.fails !== undefined) return Promise.reject(new KernelError('MISSING_TOOL', 'ethtool', this.fails))
    if (this.state === wanted) return Promise.resolve(undefined)
    this.state = wanted
    return Promise.resolve(`ethtool -K ${device} tx-checksum-ip-generic ${wanted}`)
  }
}

t.test('a card with a known fault: switched off, told, and gone with the card', async (t) => {
  const machine = new Machine(t)
  const card = (machine.checksumOffload = new Card())
  machine.join()
  const reported = (): Condition | undefined =>
    machine.api
      .cache('RouteAgent')
      .get('worker')
      ?.status?.conditions?.find(({ type }) => type === 'ChecksumOffload')
  const first = machine.start(t)
  await machine.ready()
  await eventually(() => reported() !== undefined, { say: 'the RouteAgent tells it' })
  t.match(reported(), { status: 'False', reason: 'ChecksumOffloadFault', message: /^off: .*vmxnet3/ })
  t.equal(card.state, 'off')
  t.strictSame([...new Set(card.asked)], ['sealane-vx off'], 'no other device is touched')
  const logged = machine.logger.lines.filter(({ fields }) => fields['reason'] === 'ChecksumOffloadFault')
  t.match(logged, [{ fields: { command: 'ethtool -K sealane-vx tx-checksum-ip-generic off', why: /vmxnet3/ } }])
  t.equal(logged.length, 1)
  await first.stop()

  card.fails = 'ethtool is not installed'
  const second = machine.start(t)
  await eventually(() => reported()?.reason === 'ChecksumOffloadNotSwitched', { say: 'a failure is told' })
  t.match(reported(), { status: 'Unknown', message: /vmxnet3.*ethtool is not installed/ })
  await machine.ready()
  await second.stop()

  card.drivers = ['ixgbe']
  card.asked.length = 0
  const third = machine.start(t)
  await eventually(() => reported() === undefined, { say: 'no condition is left' })
  t.strictSame(card.asked, [], 'a device without a fault is left as it is')
  await third.stop()
})
