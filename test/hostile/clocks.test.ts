/** An agent whose clock is wrong, against a broker whose clock is right. */
import { createPrivateKey } from 'node:crypto'
import type { Test } from 'tap'
import { CertificateRenewal } from '../../agent/link/certificate-renewal.ts'
import { agentMetrics } from '../../agent/loop/metrics.ts'
import { parseClusterId } from '../../model/ids.ts'
import type { MemberIdentity } from '../../protocol/membership/member-files.ts'
import { certificatesFromPem } from '../../protocol/identity/certificates.ts'
import { connectBroker } from '../../protocol/transport/grpc-client.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../runtime/metrics/prometheus-metrics.ts'
import { eventually } from '../support/eventually.ts'
import { attack } from './support/attack.ts'
import { brokerHere } from './support/broker-here.ts'
import { rawJoin } from './support/raw-join.ts'

/** A clock ahead of the machine's by a fixed time; it records how long each sleep took by the machine's clock. */
class WrongClock extends SystemClock {
  readonly slept: number[] = []
  readonly #aheadMs: number
  constructor(aheadMs: number) {
    super()
    this.#aheadMs = aheadMs
  }
  override now(): number {
    return super.now() + this.#aheadMs
  }
  override sleep(ms: number, signal: AbortSignal): Promise<void> {
    this.slept.push(ms)
    return super.sleep(ms, signal)
  }
}

await attack('clock-ahead-renewal', wrongBy(17))
await attack('clock-behind-renewal', wrongBy(-30))

function wrongBy(hours: number): (t: Test) => Promise<void> {
  return async (t) => {
    const broker = await brokerHere(t)
    const { key, cert, ca } = await rawJoin(broker, 'milano')
    const identity: MemberIdentity = {
      cluster: parseClusterId('milano'),
      clusterset: 'demo',
      brokerAddresses: [broker.address],
      observedAddress: '127.0.0.1',
      key: createPrivateKey(key),
      certificate: certificatesFromPem(cert)[0] ?? new Uint8Array(),
      caBundle: certificatesFromPem(ca),
    }
    const clock = new WrongClock(hours * 3_600_000)
    const logger = new CapturingLogger()
    const client = connectBroker({
      addresses: [broker.address],
      clusterset: 'demo',
      ca: identity.caBundle,
      identity,
      // grpc-js uses the clock of this machine.
      clock: new SystemClock(),
      logger,
    })
    let renewals = 0
    const store = { read: () => Promise.resolve(undefined), write: () => Promise.resolve() }
    const metrics = agentMetrics(createMetrics('agent'))
    const renewal = new CertificateRenewal(
      { clock, logger, agentMetrics: metrics, client: () => client, onRenewed: () => (renewals += 1) },
      { store: store as never, identity },
    )
    const stop = new AbortController()
    const done = renewal.run(stop.signal)
    t.teardown(async () => {
      stop.abort()
      await done
      client.close()
    })
    await eventually(() => renewals > 0, { say: 'the certificate is renewed' })
    await eventually(() => clock.slept.length > 0, { say: 'it waits before the next' })
    t.equal(renewals, 1)
    t.match(
      renewal.problem(),
      /^check the clock: this machine says \S+Z, the broker says \S+Z: set the one that is wrong/,
    )
    t.equal(logger.lines.filter(({ message }) => /clock/.test(message)).length, 1, 'told once')
  }
}
