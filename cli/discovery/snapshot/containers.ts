/** Command lines and environment of the containers in a workload. Pure. */
import { listAt, textAt, textsAt } from './raw.ts'
import { type World, podSpecOf } from './snapshot.ts'

export function containersOf(workload: unknown): readonly unknown[] {
  const spec = podSpecOf(workload)
  return [...listAt(spec, 'containers'), ...listAt(spec, 'initContainers')]
}

/** The value of `--name=value` or `--name value`; 'true' for a bare `--name`. The last one counts, as flags go. */
export function flagOf(workload: unknown, name: string): string | undefined {
  return containersOf(workload)
    .map((container) => flagIn(wordsOf(container), name))
    .find((value) => value !== undefined)
}

/** A whole command line for a shell in one word, as GKE writes it, is taken apart. */
function wordsOf(container: unknown): string[] {
  const words = [...textsAt(container, 'command'), ...textsAt(container, 'args')]
  return words.flatMap((word) => (word.includes(' --') ? word.split(/\s+/) : [word]))
}

export function flagIn(words: readonly string[], name: string): string | undefined {
  const i = words.findLastIndex((word) => word === `--${name}` || word.startsWith(`--${name}=`))
  const word = words[i]
  if (word === undefined) return undefined
  if (word !== `--${name}`) return word.slice(name.length + 3)
  const next = words[i + 1]
  return next === undefined || next.startsWith('-') ? 'true' : next
}

export function environmentOf(workload: unknown, name: string): string | undefined {
  return containersOf(workload)
    .flatMap((container) => listAt(container, 'env'))
    .filter((entry) => textAt(entry, 'name') === name)
    .map((entry) => textAt(entry, 'value'))
    .find((value) => value !== undefined)
}

/** The pods of a static part of the control plane, by the label that the kubelet's manifests carry, or by name. */
export function partPods(world: World, component: string): readonly unknown[] {
  return world
    .list('Pod')
    .filter(
      (pod) =>
        textAt(pod, 'metadata', 'labels', 'component') === component ||
        (textAt(pod, 'metadata', 'name') ?? '').startsWith(`${component}-`),
    )
}

/** Where CNIs live. A tenant's DaemonSet that happens to have the name of one says nothing. */
const SYSTEM_NAMESPACES = new Set([
  'antrea-system',
  'calico-system',
  'cilium',
  'cilium-system',
  'kube-flannel',
  'kube-router',
  'kube-system',
  'openshift-ovn-kubernetes',
  'ovn-kubernetes',
])

/** The first DaemonSet with one of these names, in a namespace of the system. */
export function daemonSet(world: World, ...names: readonly string[]): unknown {
  const all = world.list('DaemonSet').filter((one) => SYSTEM_NAMESPACES.has(textAt(one, 'metadata', 'namespace') ?? ''))
  return names
    .map((name) => all.find((one) => textAt(one, 'metadata', 'name') === name))
    .find((object) => object !== undefined)
}
