/**
 * What a person would find with `kubectl describe pod`: why a part's pods do not run. Pure but for the list of pods.
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

/** As much of a Pod as is looked at. */
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
  /** It does not pass by itself: what somebody has to do. */
  readonly mend?: string
}

/** A pod that is being made says these. */
const NO_NEWS: ReadonlySet<string> = new Set(['ContainerCreating', 'PodInitializing'])
/** The node cannot have the image. */
export const IMAGE_TROUBLE: ReadonlySet<string> = new Set([
  'ErrImagePull',
  'ImagePullBackOff',
  'ErrImageNeverPull',
  'InvalidImageName',
])
const MEND_IMAGE =
  'say --image with one that its node can have, and --image-pull-secret where the registry asks for one'
const MAX_SAID = 300

/** Why a broker ended that another start does not help: the store is not one that it may take. */
const HOPELESS = /^reason: State(?:AccessDenied|Foreign|TooOld|TooNew)$/m
const MEND_STORE = 'nothing was written to the store: mend that, and type the same command again'

/** Of what a program wrote last, the part in which it says why it ended. */
export function lastSaid(text: string): string {
  const at = `\n${text}`.lastIndexOf('\nsealane: ')
  return at < 0 ? text : text.slice(at + 'sealane: '.length).trim()
}

/** The first pod of a part that cannot run, in the order of their names, and why; undefined when there is none. */
export async function partTrouble(
  admin: Pick<ClusterAdmin, 'list'>,
  part: PartName,
  namespace: string,
  signal: AbortSignal,
): Promise<Trouble | undefined> {
  const scope = { namespace, labelSelector: selectorText(part) }
  return firstTrouble(await admin.list('v1', 'Pod', scope, signal))
}

/** Selects a part's pods. */
export function selectorText(part: PartName): string {
  return Object.entries(selectorLabels(part))
    .map((pair) => pair.join('='))
    .join(',')
}

/** Pods that go are no trouble. */
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
    // What the program said when it ended says more than that the kubelet waits to start it again.
    return lastState?.terminated?.message ?? message ?? reason
  }
  const unready = status?.containerStatuses?.some(({ ready, state }) => ready === false && state?.running !== undefined)
  if (unready === true) {
    return `it runs and is not ready yet: see kubectl --namespace ${metadata.namespace ?? ''} logs ${metadata.name}`
  }
  return status?.conditions?.find(({ type, status: is }) => type === 'PodScheduled' && is === 'False')?.message
}
