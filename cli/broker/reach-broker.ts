/**
 * Reaches the broker that a command is about: in a cluster through its pod, on this machine through the admin socket in
 * its state directory, or its state itself while it does not run.
 */
import { SystemClock } from '../../reconcile/reconcile.ts'
import type { BrokerAdmin } from '../../protocol/admin/admin.ts'
import { UserError, messageOf } from '../../runtime/runtime.ts'
import { type CommandContext, type KubeTarget, targetFlags, withinTime } from '../context/context.ts'

export interface BrokerPlace {
  /** Undefined for the broker on this machine. */
  readonly kube: KubeTarget | undefined
  /** The state directory of the broker on this machine. */
  readonly state: string
  /** Undefined for the broker's own clusterset. */
  readonly clusterset?: string | undefined
  /** In milliseconds. */
  readonly timeout: number
}

/**
 * `served`: a broker runs. False: the state was read or changed without it. For an etcd that replicas on other machines
 * serve, undefined if that is not known.
 */
export interface Reached {
  readonly admin: BrokerAdmin
  readonly served: boolean | undefined
}

/**
 * Throws UserError, RefusedError or StateError with the message of the broker or of its state, KubeError, and UserError
 * if it takes longer than the timeout.
 */
export async function withBroker<T>(
  { kube, state, clusterset, timeout }: BrokerPlace,
  context: CommandContext,
  work: (admin: BrokerAdmin, reached: Omit<Reached, 'admin'>) => Promise<T>,
): Promise<T> {
  return withinTime(context.signal, timeout, async (signal) => {
    if (kube !== undefined) {
      // The parts of each way are loaded on demand: the store loads the database, the pod loads the API client.
      const [{ withAdmin }, { podBroker }] = await Promise.all([
        import('../context/with-admin.ts'),
        import('./pod-broker.ts'),
      ])
      return withAdmin(kube, new SystemClock(), { ...context, signal }, ({ admin }) => {
        const flags = targetFlags(kube, admin.contextName)
        return work(podBroker(admin, { flags, clusterset, signal }), { served: true })
      })
    }
    const { adminSocket, isAdminServed } = await import('../../protocol/admin/admin-socket.ts')
    const socket = adminSocket(state)
    if (await isAdminServed(socket).catch((error: unknown) => notPermitted(socket, error))) {
      const [{ withAdminClient }, { localOperator }] = await Promise.all([
        import('../../protocol/admin/admin-client.ts'),
        import('../../protocol/admin/local-operator.ts'),
      ])
      const init = { socket, clusterset, operator: localOperator(), signal }
      return withAdminClient(init, (admin) => work(admin, { served: true }))
    }
    const { isServed, withOfflineBroker } = await import('../../compose/broker/offline.ts')
    const init = { state, clusterset, signal }
    return withOfflineBroker(init, async (admin) => work(admin, { served: await isServed(state, signal) }))
  })
}

function notPermitted(socket: string, cause: unknown): never {
  throw new UserError(`${socket}: ${messageOf(cause)}`, { hint: "run this command as the broker's user", cause })
}

/**
 * `no broker runs on /var/lib/sealane/broker: …`, with the time of the last contact with a member: what is read from a
 * state without its broker is only as current as the broker's last write. Undefined if a broker runs.
 */
export function unservedText(
  state: string,
  { served }: Pick<Reached, 'served'>,
  members: readonly { readonly lastSeenMs: number }[],
): string | undefined {
  if (served !== false) return undefined
  const lastMs = Math.max(...members.map(({ lastSeenMs }) => lastSeenMs))
  const last = Number.isFinite(lastMs)
    ? `the last contact with a member was at ${new Date(lastMs).toISOString()}`
    : 'no member was ever in contact'
  return `no broker runs with ${state}: this is its last stored state; ${last}`
}
