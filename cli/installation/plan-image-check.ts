/**
 * Decides whether the nodes that are to run Sealane can have its image, from what the cluster already reports: the
 * images on nodes, the running pods and the pull secrets. Names the nodes that only a short-lived pod can check. Pure.
 */
import {
  type ImageName,
  type ManifestObject,
  type Marks,
  formatImageName,
  fullImageName,
} from '../../install/values/values.ts'
import { isMachine } from '../../model/model.ts'
import { isReady } from './rollout.ts'
import { listOf } from './object-status.ts'
import { IMAGE_TROUBLE } from './pod-trouble.ts'

export interface ImageQuestion {
  readonly image: ImageName & { readonly pullPolicy: string }
  readonly pullSecrets: readonly string[]
  /** The namespace of the parts and of the pull secrets. */
  readonly namespace: string
  /** `every`: the image will run on each node. `one`: it will run on any node that accepts pods. */
  readonly on: 'every' | 'one'
  /** The marks of the pods that check nodes. Undefined if there are none. */
  readonly marks?: Marks
  /** The cluster admits pods by SecurityContextConstraints. */
  readonly isOpenShift?: boolean
}

/** A list is undefined if this user may not read it. Then nothing is known about its objects. */
export interface ImageWorld {
  readonly nodes: readonly ManifestObject[] | undefined
  readonly pods: readonly ManifestObject[] | undefined
  /** The pull secrets that exist. Undefined if this user may not read them. */
  readonly secrets: ReadonlySet<string> | undefined
  /** Whether the namespace of the pull secrets exists. Undefined if this user may not read it. */
  readonly namespaceThere: boolean | undefined
}

export interface ImagePlan {
  /** Problems that make the installation fail. */
  readonly problems: readonly string[]
  /** Remarks that do not stop the installation. */
  readonly notes: readonly string[]
  /** The nodes about which nothing is known, for a pod to check. */
  readonly probe: readonly string[]
}

/** By default a kubelet reports 50 images, the largest first. A full list says nothing about other images. */
const MAX_LISTED = 50
/** All nodes use the same registry, so it is enough to check some of many nodes. */
const MAX_PROBED = { every: 20, one: 1 } as const

export function planImageCheck(question: ImageQuestion, world: ImageWorld): ImagePlan {
  const { image, on } = question
  const missing = missingSecrets(question, world)
  const nodes = candidates(question, world.nodes ?? [])
  const states = nodes.map((node) => ({ name: node.metadata.name, has: hasImage(node, question, world) }))
  const without = states.filter(({ has }) => has === false).map(({ name }) => name)
  const open = states.filter(({ has }) => has === undefined).map(({ name }) => name)
  const why = unobtainable(image)
  if (why !== undefined) {
    const fails = without.length > 0 && (on === 'every' || without.length === states.length)
    const text = `no image: ${formatImageName(image)} is not on ${nodeList(without, states.length)}, and ${why}`
    return {
      problems: [...missing, ...(fails ? [text] : [])],
      notes: fails || without.length === 0 ? [] : [text],
      probe: [],
    }
  }
  // One node that has the image shows that the registry has, or had, it.
  const known = on === 'one' && states.some(({ has }) => has === true)
  const probe = known ? [] : [...open, ...without].sort().slice(0, MAX_PROBED[on])
  return { problems: missing, notes: earlierTrouble(question, world), probe: missing.length > 0 ? [] : probe }
}

/** The reason why no node can pull the image. Undefined if there is none. */
function unobtainable({ repository, pullPolicy }: ImageQuestion['image']): string | undefined {
  if (pullPolicy === 'Never') return 'with --image-pull-policy Never no node pulls it'
  // A name with a port, such as `localhost:5000/`, may be a registry on each node. Without a port it is a name that
  // build tools give to local images.
  return repository.startsWith('localhost/') ? 'localhost is not a registry, so no node can pull it' : undefined
}

function missingSecrets(
  { pullSecrets, namespace }: ImageQuestion,
  { secrets, namespaceThere }: ImageWorld,
): readonly string[] {
  if (secrets === undefined) return []
  const missing = pullSecrets.filter((name) => !secrets.has(name))
  return missing.map(
    (name, i) =>
      `no pull secret: there is no Secret ${namespace}/${name}: create it with ` +
      (namespaceThere === false && i === 0 ? `kubectl create namespace ${namespace}; ` : '') +
      `kubectl --namespace ${namespace} create secret docker-registry ${name}`,
  )
}

interface NodeSpec {
  readonly unschedulable?: boolean
  readonly taints?: readonly { readonly effect?: string }[]
}

function candidates({ on }: ImageQuestion, nodes: readonly ManifestObject[]): readonly ManifestObject[] {
  const machines = nodes.filter((node) => isReady(node) && isMachine(node))
  if (on === 'every') return machines
  const open = machines.filter((node) => {
    const { unschedulable = false, taints = [] } = (node['spec'] ?? {}) as NodeSpec
    return !unschedulable && !taints.some(({ effect }) => effect === 'NoSchedule' || effect === 'NoExecute')
  })
  return open.length > 0 ? open : machines
}

/** Undefined if it is not known. */
function hasImage(node: ManifestObject, { image }: ImageQuestion, { pods = [] }: ImageWorld): boolean | undefined {
  const wanted = fullImageName(formatImageName(image))
  if (pods.some((pod) => runsThere(pod, node.metadata.name, wanted))) return true
  const images = listOf(node, 'images') as readonly { readonly names?: readonly string[] | null }[]
  const listed = images.some(({ names }) => (names ?? []).some((name) => fullImageName(name) === wanted))
  // The kubelet asks the registry each time, so a local copy is of no use if the registry is unreachable.
  if (listed) return image.pullPolicy === 'Always' ? undefined : true
  return images.length === 0 || images.length >= MAX_LISTED ? undefined : false
}

interface PodFacts {
  readonly spec?: {
    readonly nodeName?: string
    readonly containers?: readonly { readonly name: string; readonly image?: string }[]
  }
  readonly status?: { readonly containerStatuses?: readonly ContainerFacts[] }
}
interface ContainerFacts {
  readonly name: string
  readonly state?: {
    readonly running?: object
    readonly waiting?: { readonly reason?: string; readonly message?: string }
  }
}

function containersOf(pod: ManifestObject, wanted: string): readonly ContainerFacts[] {
  const { spec, status } = pod as PodFacts
  const names = (spec?.containers ?? []).filter(({ image = '' }) => fullImageName(image) === wanted)
  return (status?.containerStatuses ?? []).filter((one) => names.some(({ name }) => name === one.name))
}

function runsThere(pod: ManifestObject, node: string, wanted: string): boolean {
  if ((pod as PodFacts).spec?.nodeName !== node) return false
  return containersOf(pod, wanted).some(({ state }) => state?.running !== undefined)
}

/** The errors that existing pods report for this image. They may be fixed by now. */
function earlierTrouble({ image }: ImageQuestion, { pods = [] }: ImageWorld): readonly string[] {
  const wanted = fullImageName(formatImageName(image))
  return pods.flatMap((pod) => {
    const waiting = containersOf(pod, wanted)
      .map(({ state }) => state?.waiting)
      .find((one) => IMAGE_TROUBLE.has(one?.reason ?? ''))
    if (waiting === undefined) return []
    const { nodeName = 'no node' } = (pod as PodFacts).spec ?? {}
    return [`pod ${pod.metadata.name} on ${nodeName} had no image so far: ${waiting.message ?? waiting.reason ?? ''}`]
  })
}

const MAX_NAMED = 5

/** `any of the 3 nodes`, `nodes a, b, c, d, e and 2 more` */
export function nodeList(names: readonly string[], all = Infinity): string {
  if (names.length === all && all > 1) return `any of the ${all} nodes`
  const more = names.length - MAX_NAMED
  const named = names.slice(0, MAX_NAMED).join(', ')
  return `node${names.length === 1 ? '' : 's'} ${named}${more > 0 ? ` and ${more} more` : ''}`
}
