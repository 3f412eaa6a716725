/**
 * Finds out why the pods of a part do not run, as `kubectl describe pod` would show it. Pure except for listing the
 * pods.
 */
import { type PartName, selectorLabels } from '../../install/values/values.ts'
import type { ClusterAdmin } from '../context/context.ts'

interface Waiting {
  readonly reason?: string
  readonly message?: string
}

interface ContainerState {
  readonly ready?: boolean
  readonly state?: { readonly waiting?: Waiting; readonly running?: object }
  readonly lastState?: { readonly terminated?: { readonly message?: string; readonly reason?: string } }
}

/** The fields of a Pod that are used here. */
export interface PodShape {
  readonly metadata: { readonly name: string; readonly namespace?: string; readonly deletionTimestamp?: string }
  readonly status?: {
    readonly phase?: string
    readonly message?: string
    readonly containerStatuses?: readonly ContainerState[]
    readonly conditions?: readonly { readonly type: string; readonly status: string; readonly message?: string }[]
  }
}

/** Why a pod does not run. */
export interface Trouble {
  /** `pod sealane-agent-0: Back-off pulling image "…"` */
  readonly why: string
  /** What the user has to do. Undefined if the problem may go away by itself. */
  readonly mend?: string
}

/** Waiting reasons of a pod that is being created. */
const NO_NEWS: ReadonlySet<string> = new Set(['ContainerCreating', 'PodInitializing'])
/** Waiting reasons that mean that the node cannot get the image. */
export const IMAGE_TROUBLE: ReadonlySet<string> = new Set([
  'ErrImagePull',
  'ImagePullBackOff',
  'ErrImageNeverPull',
  'InvalidImageName',
])
const MEND_IMAGE =
  'use --image with an image that its node can get, and --image-pull-secret if the registry needs credentials'
const MAX_SAID = 300

/** Termination messages of a broker that a restart does not help: it may not use this store. */
const HOPELESS = /^reason: State(?:AccessDenied|Foreign|TooOld|TooNew)$/m
const MEND_STORE = 'nothing was written to the store: fix that, and run the same command again'

/** The last part of a program's output, in which it says why it ended. */
export function lastSaid(text: string): string {
  const at = `\n${text}`.lastIndexOf('\nsealane: ')
  return at < 0 ? text : text.slice(at + 'sealane: '.length).trim()
}

/** The first pod of a part, ordered by name, that cannot run, and the reason. Undefined if there is none. */
export async function partTrouble(
  admin: Pick<ClusterAdmin, 'list'>,
  part: PartName,
  namespace: string,
  signal: AbortSignal,
): Promise<Trouble | undefined> {
  const scope = { namespace, labelSelector: selectorText(part) }
  return firstTrouble(await admin.list('v1', 'Pod', scope, signal))
}

/** The label selector of a part's pods. */
export function selectorText(part: PartName): string {
  return Object.entries(selectorLabels(part))
    .map((pair) => pair.join('='))
    .join(',')
}

/** Ignores pods that are being deleted. */
export function firstTrouble(pods: readonly PodShape[]): Trouble | undefined {
  const sorted = [...pods].sort((a, b) => (a.metadata.name < b.metadata.name ? -1 : 1))
  for (const pod of sorted) {
    if (pod.metadata.deletionTimestamp !== undefined) continue
    const said = podTrouble(pod)
    if (said === undefined) continue
    const why = `pod ${pod.metadata.name}: ${lastSaid(said).replace(/\s+/g, ' ').slice(0, MAX_SAID)}`
    const mend = imageTrouble(pod) ? MEND_IMAGE : HOPELESS.test(said) ? MEND_STORE : undefined
    return { why, ...(mend === undefined ? {} : { mend }) }
  }
  return undefined
}

function imageTrouble({ status }: PodShape): boolean {
  const states = status?.containerStatuses ?? []
  return states.some(({ state }) => IMAGE_TROUBLE.has(state?.waiting?.reason ?? ''))
}

function podTrouble({ metadata, status }: PodShape): string | undefined {
  if (status?.phase === 'Failed') return status.message ?? 'it has failed'
  for (const { state, lastState } of status?.containerStatuses ?? []) {
    const { reason, message } = state?.waiting ?? {}
    if (reason === undefined || NO_NEWS.has(reason)) continue
    if (IMAGE_TROUBLE.has(reason)) return message ?? reason
    // The program's termination message says more than the kubelet's message about the back-off.
    return lastState?.terminated?.message ?? message ?? reason
  }
  const unready = status?.containerStatuses?.some(({ ready, state }) => ready === false && state?.running !== undefined)
  if (unready === true) {
    return `it runs but is not ready yet: see kubectl --namespace ${metadata.namespace ?? ''} logs ${metadata.name}`
  }
  return status?.conditions?.find(({ type, status: is }) => type === 'PodScheduled' && is === 'False')?.message
}
