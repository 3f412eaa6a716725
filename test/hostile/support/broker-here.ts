/** A broker in this process, with a port and a folder of its own, for tests of refusals, which measure no memory. */
import type { Test } from 'tap'
import { type BrokerConfig, DEFAULT_BROKER_CONFIG } from '../../../broker/config/broker-config.ts'
import { runBroker } from '../../../broker/main.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { createMetrics } from '../../../runtime/metrics/prometheus-metrics.ts'
import { StatusBoard } from '../../../runtime/component.ts'
import { freePort } from '../../support/free-port.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import type { RawBroker } from './raw-channel.ts'

export interface BrokerHere extends RawBroker {
  readonly logger: CapturingLogger
  readonly metrics: ReturnType<typeof createMetrics>
  stop(): Promise<void>
}

/** Resolves when the broker listens, and rejects if it cannot start. */
export async function brokerHere(
  t: Test,
  { state = temporaryFolder(t), ...change }: Partial<BrokerConfig> & { readonly state?: string } = {},
): Promise<BrokerHere> {
  const address = `127.0.0.1:${await freePort()}`
  const config = {
    ...DEFAULT_BROKER_CONFIG,
    stateDir: state,
    listen: address,
    advertise: [address],
    clusterset: 'demo',
  }
  const stop = new AbortController()
  const logger = new CapturingLogger()
  const metrics = createMetrics('broker')
  const deps = { clock: new SystemClock(), logger, status: new StatusBoard(), metrics }
  let onListening: () => void = () => undefined
  const listening = new Promise<void>((resolve) => (onListening = resolve))
  const done = runBroker({ ...deps, onListening }, { ...config, ...change }, stop.signal)
  await Promise.race([listening, done])
  const end = async (): Promise<void> => {
    stop.abort()
    await done
  }
  t.teardown(end)
  return { address, state, logger, metrics, stop: end }
}
