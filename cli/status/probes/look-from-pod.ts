/** `sealane machine-facts` in the agent's pod: probes the broker and DNS servers over the pod's own network. */
import type { Fact } from '../../../explain/facts/facts.ts'
import { IDENTITY_SECRET } from '../../../install/values/values.ts'
import { CLUSTERSET_ZONE, SYSTEM_NAMESPACE } from '../../../model/model.ts'
import type { MemberIdentity } from '../../../protocol/membership/membership.ts'
import { SystemClock } from '../../../reconcile/reconcile.ts'
import { type CommandContext, PlainLogger } from '../../context/context.ts'
import { type IdentityPlace, probeBroker } from './broker-probe.ts'
import { probeDns } from './dns-probe.ts'
import type { AskedServer } from './machine-command.ts'
import { SILENT_PROGRESS } from './progress.ts'

export interface PodLook {
  /** Whether to connect to the broker. */
  readonly broker: boolean
  readonly servers: readonly AskedServer[]
}

/** Runs all probes at once. Rejects only with the signal's reason. */
export async function lookFromPod({ broker, servers }: PodLook, context: CommandContext): Promise<readonly Fact[]> {
  const { signal } = context
  const asked = servers.map(({ role, server }) => probeDns({ role, server, name: CLUSTERSET_ZONE }, signal))
  const called = broker ? [probeBroker(identitySecret(context), SILENT_PROGRESS, signal)] : []
  return (await Promise.all([...called, ...asked])).flat()
}

/** Reads the identity as the agent does: one request with the pod's own service account, without a cache. */
function identitySecret(context: CommandContext): IdentityPlace {
  const place = `Secret ${SYSTEM_NAMESPACE}/${IDENTITY_SECRET}`
  return {
    place,
    right: `get secrets ${IDENTITY_SECRET} in namespace ${SYSTEM_NAMESPACE}`,
    read: (signal) => readIdentity(place, context, signal),
  }
}

async function readIdentity(
  place: string,
  { env = process.env, output }: CommandContext,
  signal: AbortSignal,
): Promise<MemberIdentity | undefined> {
  const { openKubeApi } = await import('../../../kubeapi/kube/kube-api.ts')
  const { IDENTITY_PARTS, decodeMemberIdentity } = await import('../../../protocol/membership/member-files.ts')
  const deps = { clock: new SystemClock(), logger: new PlainLogger(output) }
  const api = await openKubeApi(deps, { namespace: SYSTEM_NAMESPACE, env })
  try {
    const data = (await api.secrets.read(IDENTITY_SECRET, signal))?.data
    const texts = IDENTITY_PARTS.flatMap((part) => {
      const octets = data?.get(part)
      return octets === undefined ? [] : [[part, Buffer.from(octets).toString('utf8')] as const]
    })
    return decodeMemberIdentity(Object.fromEntries(texts), (part) => `${place}: ${part}`)
  } finally {
    await api.close()
  }
}
