/** The environment of every Sealane process: log, metrics, status page. */
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
  /** One or more addresses. */
  readonly statusListen: readonly string[]
  /** A LogSwitch is shared with other loggers of the process. */
  readonly logLevel: LogThreshold | LogSwitch
  /** An existing registry. By default, a new one is created. */
  readonly metrics?: Metrics | undefined
}

/**
 * Runs `work` with the status pages up, and closes them afterwards, also on failure. The process is not ready until
 * `work` calls `started`, since the pages answer before any part is loaded that could report what it waits for.
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
    // Each address has its own server, so that a client that exhausts one does not block the node's probes at the
    // other.
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
 * The addresses that a kubelet or a forwarded port connects from: this machine, the next hop of a pod (its node with
 * most CNIs), and the addresses of the node by the installation.
 */
async function probingAddresses(node = ''): Promise<readonly string[]> {
  const said = node.split(',').filter((address) => isIP(address) !== 0)
  return ['127.0.0.1', '::1', ...(await nearAddresses()), ...said]
}

/** Throws UserError for a text that is neither empty nor the accepted word. */
function readMetricsFor(text = ''): NonNullable<StatusServerInit['metricsFor']> {
  if (text === '') return 'namedAddresses'
  if (text === METRICS_EVERYWHERE) return 'everywhere'
  throw new UserError(`${STATUS_METRICS} ${JSON.stringify(text.slice(0, 100))}: expected ${METRICS_EVERYWHERE}`)
}
