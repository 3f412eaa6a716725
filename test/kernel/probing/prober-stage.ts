/** The prober on a fake clock, with far ends in memory. */
import { decodeProbe } from '../../../kernel/probing/probe-packet.ts'
import { type ProbedPeer, Prober } from '../../../kernel/probing/prober.ts'
import { LANE_PROBE_PORT } from '../../../model/kernel-ids.ts'
import { FakeClock } from '../../../reconcile/fake-clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { FakeProbes } from '../../support/fake-probes.ts'

export const OWN = '246.0.1.0'
export const PARIS: ProbedPeer = { key: 'paris', number: 0, address: '246.0.2.0' }
export const TOKYO: ProbedPeer = { key: 'tokyo', number: 0, address: '246.0.3.0' }

export function setUp(t: { teardown: (end: () => void) => unknown }) {
  const clock = new FakeClock()
  const probes = new FakeProbes()
  const logger = new CapturingLogger()
  const seen: string[] = []
  const counts = { sent: 0, answered: 0, ignored: 0 }
  const busy = new Set<string>()
  /** Changes of `unanswered`, which no row of `seen` has. */
  const avoided: string[] = []
  const sizes: (number | undefined)[] = []
  const prober: Prober = new Prober(
    {
      clock,
      logger,
      openSocket: probes.openSocket,
      count: (what) => (counts[what] += 1),
      onTransition: ({ key }, from, to) => seen.push(`${clock.monotonic()} ${key} ${from}>${to}`),
      onSuspect: ({ key }, doubted) => seen.push(`${clock.monotonic()} ${key} ${doubted ? 'doubted' : 'trusted'}`),
      onUnanswered: ({ key }, unanswered) =>
        avoided.push(`${clock.monotonic()} ${key} ${unanswered ? 'avoided' : 'used'}`),
      isBusy: ({ key }) => busy.has(key),
      onSize: ({ key }) => sizes.push(prober.health().get(key)?.sendSize),
    },
    {
      name: 'lane 0',
      number: 0,
      address: OWN,
      port: LANE_PROBE_PORT,
      missesUntilSuspect: 4,
      downAfterMs: 1500,
      unansweredAfterMs: 600,
      calmAfterMs: 3000,
      answersUntilUp: 2,
    },
  )
  prober.setPeers([PARIS])
  const stopping = new AbortController()
  const running = prober.run(stopping.signal)
  t.teardown(() => stopping.abort())
  const questions = (): number => probes.sent.filter(({ bytes }) => decodeProbe(bytes)?.type === 'question').length
  return {
    clock,
    probes,
    logger,
    seen,
    avoided,
    prober,
    counts,
    busy,
    sizes,
    questions,
    stop: () => {
      stopping.abort()
      return running
    },
  }
}
