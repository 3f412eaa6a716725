/** Which candidate leads at which second, on a fake clock and a fake store. */
import t, { type Test } from 'tap'
import { ClusterApiError, type LeaseStore } from '../../../kubeapi/cluster-api.ts'
import { MemoryApi } from '../../../kubeapi/memory/memory-api.ts'
import { Election } from '../../../kubeapi/lease/election.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { FakeLeases } from '../../gateway/support/fake-leases.ts'

const NO_ANSWER = new ClusterApiError('Unavailable', 'no answer')

class Candidates {
  readonly clock = new FakeClock()
  readonly leases = new FakeLeases(new MemoryApi({ clock: this.clock }))
  readonly logger = new CapturingLogger()
  /** The changes of leader with their second, as `+a 0`. */
  readonly log: string[] = []
  readonly gauges = new Map<string, number>()
  /** The candidates that cannot reach the store. */
  readonly cut = new Set<string>()
  readonly #stops = new Map<string, AbortController>()

  constructor(t: Test) {
    t.teardown(() => this.#stops.forEach((stop) => stop.abort()))
  }

  start(identity: string, replaces?: (holder: string) => boolean): Promise<void> {
    const stop = new AbortController()
    this.#stops.set(identity, stop)
    const answer = async (): Promise<void> => {
      await Promise.resolve()
      if (this.cut.has(identity)) throw NO_ANSWER
    }
    const leases: LeaseStore = {
      read: (name, signal) => answer().then(() => this.leases.read(name, signal)),
      write: (lease, signal) => answer().then(() => this.leases.write(lease, signal)),
    }
    const leader = { set: (value: number) => void this.gauges.set(identity, value) }
    const init = { name: 'agent', identity, ...(replaces === undefined ? {} : { replaces }) }
    const lead = async (office: AbortSignal): Promise<void> => {
      this.#say('+', identity)
      await new Promise<void>((resolve) => office.addEventListener('abort', () => resolve()))
      this.#say('-', identity)
    }
    return new Election({ clock: this.clock, logger: this.logger, leader, leases }, init).run(lead, stop.signal)
  }

  stop(identity: string): void {
    this.#stops.get(identity)?.abort()
  }

  async pass(ms: number): Promise<void> {
    for (let i = 0; i < ms; i += 100) await this.clock.advance(100)
  }

  get lease() {
    return this.leases.get('agent')
  }

  #say(sign: '+' | '-', identity: string): void {
    this.log.push(`${sign}${identity} ${Math.round(this.clock.monotonic() / 1000)}`)
  }
}

/** `a` leads, and `b` follows. */
async function aLeads(t: Test): Promise<Candidates> {
  const all = new Candidates(t)
  void all.start('a')
  await all.pass(500)
  void all.start('b')
  await all.pass(9500)
  t.strictSame(all.log, ['+a 0'])
  t.strictSame(
    [...all.gauges],
    [
      ['a', 1],
      ['b', 0],
    ],
  )
  return all
}

t.test('a leader renews every 2 s, and says so as other releases do', async (t) => {
  const all = await aLeads(t)
  t.strictSame(all.lease?.spec, {
    holderIdentity: 'a',
    leaseDurationSeconds: 10,
    acquireTime: '2026-01-01T00:00:00.000000Z',
    renewTime: '2026-01-01T00:00:10.000000Z',
    leaseTransitions: 0,
  })
  t.equal(all.lease?.metadata.resourceVersion, '6')
})

t.test('a leader that reaches no store ends after 7 s, and the next one leads after 10 s', async (t) => {
  const all = await aLeads(t)
  all.cut.add('a')
  await all.pass(6900)
  t.strictSame(all.log, ['+a 0'])
  await all.pass(200)
  t.strictSame(all.log, ['+a 0', '-a 17'])
  t.equal(all.gauges.get('a'), 0)
  t.match(all.logger.messages('warn'), ['cannot renew the lease; retrying', 'this process has lost its leadership'])
  await all.pass(2800)
  t.equal(all.log.length, 2)
  await all.pass(4200)
  t.match(all.log[2], /^\+b 2[0-3]$/)
  t.match(all.lease?.spec, { holderIdentity: 'b', leaseTransitions: 1 })
  all.cut.clear()
  await all.pass(30_000)
  t.equal(all.log.length, 3, 'and who comes back follows')
})

t.test('no candidate reaches the store for a minute: the time that a follower watched counts', async (t) => {
  const all = await aLeads(t)
  all.cut.add('a')
  await all.pass(2100)
  all.cut.add('b')
  await all.pass(57_900)
  t.strictSame(all.log, ['+a 0', '-a 17'])
  all.cut.delete('b')
  await all.pass(2100)
  t.match(all.log[2], /^\+b 7[0-2]$/)
})

t.test('a leader that stops gives the Lease back for a second', async (t) => {
  const all = await aLeads(t)
  all.stop('a')
  await all.pass(100)
  t.match(all.lease?.spec, {
    holderIdentity: '',
    leaseDurationSeconds: 1,
    acquireTime: '2026-01-01T00:00:00.000000Z',
    leaseTransitions: 0,
  })
  await all.pass(2000)
  t.match(all.log[2], /^\+b 1[0-2]$/)
  t.match(all.lease?.spec, { leaseDurationSeconds: 10, leaseTransitions: 1 })
})

t.test('who replaces a process that has ended does not wait, and only at its first attempt', async (t) => {
  const all = await aLeads(t)
  all.cut.add('a')
  void all.start('c', (holder) => holder === 'a')
  await all.pass(100)
  t.match(all.log, ['+a 0', '+c 10'])
  all.cut.delete('a')
  await all.pass(3000)
  t.match(all.log[2], /^-a 1[0-3]$/, 'and who was replaced ends as soon as it reads that')
})

t.test('a Lease that somebody removes is made again by its leader', async (t) => {
  const all = new Candidates(t)
  void all.start('a')
  await all.pass(500)
  all.leases.collects = true
  await all.pass(2000)
  all.leases.collects = false
  await all.pass(4000)
  t.strictSame(all.log, ['+a 0'])
  t.match(all.lease?.spec, { holderIdentity: 'a', leaseDurationSeconds: 10, leaseTransitions: 0 })
})
