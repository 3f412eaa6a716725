/** Checks, before anything is changed, whether a cluster can run a broker with the given options. */
import type { InstallValues } from '../../../install/values/values.ts'
import { UserError } from '../../../runtime/runtime.ts'
import { type ClusterAdmin, listIfAllowed } from '../../context/context.ts'
import { type BrokerOptions, deployCommand } from './deploy-options.ts'
import { type ImageCheckInit, imageExample, imageProblems, imageQuestion } from '../../installation/installation.ts'
import { type BrokerWorld, type Gap, addressGap, claimsOf, volumeGap } from './plan-broker-place.ts'

export interface PlaceInit extends ImageCheckInit {
  readonly chosen: BrokerOptions
  /** `--context c1`, for the command that messages recommend. */
  readonly flags: string
}

/** Throws UserError, which lists everything that is missing and one command that fixes it. */
export async function requirePlace(admin: ClusterAdmin, values: InstallValues, init: PlaceInit): Promise<void> {
  const { chosen, flags, signal } = init
  const world = { ...(await readAddresses(admin, signal)), ...(await readStorage(admin, values, signal)) }
  const early = [addressGap(values, world, chosen.serviceType !== undefined), volumeGap(values, world)]
  const known = early.filter((gap) => gap !== undefined)
  // If something else is missing anyway, no node has to pull the image for a check.
  const gaps = [...known, ...(await imageGaps(admin, values, { ...init, dryRun: init.dryRun || known.length > 0 }))]
  if (gaps.length === 0) return
  const list = gaps.map(({ what }) => `\n  ${what}`).join('')
  const words = gaps.flatMap((gap) => gap.flags)
  const command = words.length === 0 ? '' : `run: ${deployCommand(flags, chosen, words)}\n`
  throw new UserError(`the broker cannot be installed on ${admin.title} with these settings:${list}`, {
    hint: `${command}nothing was changed; to install anyway, use --force`,
  })
}

async function imageGaps(admin: ClusterAdmin, values: InstallValues, init: PlaceInit): Promise<readonly Gap[]> {
  const question = imageQuestion(values, values.broker.namespace, 'one')
  const problems = await imageProblems(admin, question, init)
  return problems.map((what, i) => {
    const flags = what.startsWith('no image') && i === 0 ? ['--image', imageExample(question)] : []
    return { what, flags }
  })
}

/** Kinds of objects from which load balancers of self-managed clusters allocate addresses. */
const POOLS = [
  ['metallb.io/v1beta1', 'IPAddressPool'],
  ['cilium.io/v2', 'CiliumLoadBalancerIPPool'],
  ['cilium.io/v2alpha1', 'CiliumLoadBalancerIPPool'],
] as const

async function readAddresses(
  admin: ClusterAdmin,
  signal: AbortSignal,
): Promise<Pick<BrokerWorld, 'services' | 'nodes' | 'addressPools' | 'workloads'>> {
  const list = (apiVersion: string, kind: string) => listIfAllowed(admin, apiVersion, kind, signal)
  const pools = await Promise.all(POOLS.map(([apiVersion, kind]) => list(apiVersion, kind)))
  return {
    services: await list('v1', 'Service'),
    nodes: await list('v1', 'Node'),
    addressPools: pools.flatMap((found) => found ?? []),
    workloads: [...((await list('apps/v1', 'Deployment')) ?? []), ...((await list('apps/v1', 'DaemonSet')) ?? [])],
  }
}

/** Reads the objects that determine whether a claim can ever get a volume. */
export async function readStorage(
  admin: Pick<ClusterAdmin, 'get' | 'list'>,
  values: InstallValues,
  signal: AbortSignal,
): Promise<Pick<BrokerWorld, 'storageClasses' | 'volumes' | 'claim'>> {
  const { namespace } = values.broker
  const name = claimsOf(values)?.name
  const claim = { apiVersion: 'v1', kind: 'PersistentVolumeClaim', namespace }
  return {
    storageClasses: await listIfAllowed(admin, 'storage.k8s.io/v1', 'StorageClass', signal),
    volumes: await listIfAllowed(admin, 'v1', 'PersistentVolume', signal),
    claim: name === undefined ? undefined : await admin.get({ ...claim, name }, signal),
  }
}
