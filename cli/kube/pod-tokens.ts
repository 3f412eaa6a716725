/** The tokens of a broker that runs on a cluster: the same commands, in its pod. */
import { objectName } from '../../install/names.ts'
import { DEFAULT_VALUES } from '../../install/values.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { UserError } from '../../runtime/user-error.ts'
import type { TokenStore } from '../compose-broker.ts'
import type { CommandContext } from '../context.ts'
import { type KubeTarget, targetFlags } from '../target.ts'
import type { ClusterAdmin } from './admin.ts'
import { brokerPod } from './deploy-broker.ts'
import { withAdmin } from './installed-site.ts'

/** The part of a token store that works over any distance. */
export interface Tokens {
  create(init: Parameters<TokenStore['create']>[0]): Promise<{
    readonly id: string
    readonly text: string
    readonly expiresAtMs: number
  }>
  list(): ReturnType<TokenStore['list']>
  revoke(id: string): Promise<unknown>
}

const STATE = '/var/lib/sealane/broker'

export function withPodTokens<T>(
  target: KubeTarget,
  { signal, output }: CommandContext,
  work: (tokens: Tokens) => Promise<T>,
): Promise<T> {
  return withAdmin(target, new SystemClock(), { signal, output }, ({ admin }) =>
    work(podTokens(admin, targetFlags(target), signal)),
  )
}

function podTokens(admin: ClusterAdmin, flags: string, signal: AbortSignal): Tokens {
  const ask = (words: readonly string[]): Promise<string> => run(admin, { words, flags }, signal)
  return {
    create: async ({ ttlMs, uses, cluster }) => {
      const words = [
        ...(ttlMs === undefined ? [] : ['--ttl', `${Math.round(ttlMs / 1000)}s`]),
        ...(uses === undefined ? [] : ['--uses', String(uses)]),
        ...(cluster === undefined ? [] : ['--cluster-id', cluster]),
      ]
      const made = JSON.parse(await ask(['create', ...words, '-o', 'json'])) as {
        readonly id: string
        readonly token: string
        readonly expires: string
      }
      return { id: made.id, text: made.token, expiresAtMs: Date.parse(made.expires) }
    },
    list: async () =>
      (JSON.parse(await ask(['list', '-o', 'json'])) as { items: Awaited<ReturnType<Tokens['list']>> }).items,
    revoke: (id) => ask(['revoke', id]),
  }
}

/** Throws UserError with what the command in the pod said. */
async function run(
  admin: ClusterAdmin,
  { words, flags }: { readonly words: readonly string[]; readonly flags: string },
  signal: AbortSignal,
): Promise<string> {
  const { namespace } = DEFAULT_VALUES.broker
  const pod = await brokerPod(admin, { namespace, flags }, signal)
  const command = ['sealane', 'token', ...words, '--state', STATE]
  const container = objectName('broker').replace('sealane-', '')
  const { status, stdout, stderr } = await admin.exec({ namespace, pod, container, command }, signal)
  if (status === 0) return stdout
  throw new UserError(`the broker of ${admin.title} says: ${stderr.trim().replace(/^sealane: /, '')}`)
}
