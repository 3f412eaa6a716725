/** What every process of Sealane has around its components: log, metrics, status page. */
import { isIP } from 'node:net'
import { SystemClock } from '../reconcile/reconcile.ts'
import {
  type ComponentDeps,
  StatusBoard,
  UserError,
  formatHostPort,
  nearAddresses,
  openFiles,
  sealaneVersion,
} from '../runtime/runtime.ts'
import { METRICS_EVERYWHERE, NODE_ADDRESSES, STATUS_METRICS } from '../install/workloads/workloads.ts'
import { type StatusServer, type StatusServerInit, serveStatus } from '../runtime/http/http.ts'
import { LogSwitch, type LogThreshold, createLogger, toggleBySignal } from '../runtime/logging/logging.ts'
import { type Metrics, createMetrics } from '../runtime/metrics/metrics.ts'

export interface ProcessInit {
  readonly name: string
  /** One or more. */
  readonly statusListen: readonly string[]
  /** A switch: what other loggers of the process go by as well. */
  readonly logLevel: LogThreshold | LogSwitch
  /** What was counted with before; a new registry by default. */
  readonly metrics?: Metrics | undefined
}

/**
 * Runs `work` with the status page up; takes it down afterwards, also on failure. Not ready until `work` calls
 * `started`: the page answers before any part has been loaded and could say what it waits for.
 */
export async function withProcess(
  init: ProcessInit,
  work: (deps: ComponentDeps, started: () => void) => Promise<void>,
): Promise<void> {
  const log = typeof init.logLevel === 'string' ? new LogSwitch(init.logLevel) : init.logLevel
  const logger = createLogger(init.name, log)
  const metrics = init.metrics ?? createMetrics(init.name)
  const status = new StatusBoard()
  const metricsFor = readMetricsFor(process.env[STATUS_METRICS])
  const near = await probingAddresses(process.env[NODE_ADDRESSES])
  let isStarted = false
  const [startedAt, version] = [new Date().toISOString(), sealaneVersion()]
  status.report('part', () => init.name)
  status.report('version', () => version)
  status.report('startedAt', () => startedAt)
  status.report('files', () => openFiles())
  status.readiness('process', () => (isStarted ? undefined : 'is starting'))
  const clock = new SystemClock()
  const servers: StatusServer[] = []
  const forget = toggleBySignal(log, logger)
  try {
    // A server each: who fills the one up does not keep the node's own probes out of the other.
    for (const listen of init.statusListen) {
      const server = await serveStatus({ listen, status, metrics, clock, metricsFor, near })
      servers.push(server)
      logger.info('status page is up', { address: formatHostPort(server.address) })
    }
    await work({ clock, logger, metrics, status }, () => (isStarted = true))
  } finally {
    forget()
    await Promise.all(servers.map((server) => server.close()))
  }
}

/**
 * From where a kubelet, or a forwarded port, calls: this machine, the next hop of a pod, which is its node for most
 * CNIs, and the addresses of the node, as the installation says them.
 */
async function probingAddresses(node = ''): Promise<readonly string[]> {
  const said = node.split(',').filter((address) => isIP(address) !== 0)
  return ['127.0.0.1', '::1', ...(await nearAddresses()), ...said]
}

/** Throws UserError for what is neither empty nor the one word. */
function readMetricsFor(text = ''): NonNullable<StatusServerInit['metricsFor']> {
  if (text === '') return 'namedAddresses'
  if (text === METRICS_EVERYWHERE) return 'everywhere'
  throw new UserError(`${STATUS_METRICS} ${JSON.stringify(text.slice(0, 100))}: expected ${METRICS_EVERYWHERE}`)
}
