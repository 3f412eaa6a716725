/** Asks a cluster whether its nodes can have the image, before anything of an installation is changed. */
import { formatImageName } from '../../../install/image-name.ts'
import type { ManifestObject } from '../../../install/manifest-object.ts'
import type { InstallValues } from '../../../install/values.ts'
import type { Clock } from '../../../reconcile/clock.ts'
import { UserError } from '../../../runtime/user-error.ts'
import type { ClusterAdmin } from '../access/admin.ts'
import { askNodes } from './image-probe.ts'
import { listIfAllowed, unlessForbidden } from '../access/listing.ts'
import { type ImageQuestion, nodeList, planImageCheck } from './plan-image-check.ts'

export interface ImageCheckInit {
  /** Makes no pods. */
  readonly dryRun: boolean
  readonly clock: Clock
  readonly signal: AbortSignal
  readonly say: (text: string) => void
}

export function imageQuestion(values: InstallValues, namespace: string, on: ImageQuestion['on']): ImageQuestion {
  const { objects, pods } = values
  const marks = {
    labels: { ...objects.labels, ...pods.labels },
    annotations: { ...objects.annotations, ...pods.annotations },
  }
  return { image: values.image, pullSecrets: values.imagePullSecrets.map(({ name }) => name), namespace, on, marks }
}

/** Throws UserError naming the nodes that cannot have it; nothing of the installation is changed then. */
export async function requireImage(admin: ClusterAdmin, question: ImageQuestion, init: ImageCheckInit): Promise<void> {
  const problems = await imageProblems(admin, question, init)
  if (problems.length === 0) return
  throw new UserError(`${admin.title}: ${problems.join('\n')}`, {
    hint:
      `say --image ${imageExample(question)}; go on all the same with --force; nothing was changed\n` +
      'how to build, push and carry the image: docs/operations.md',
  })
}

/** What is known not to work, one sentence each; empty where nothing is. Leaves nothing in the cluster. */
export async function imageProblems(
  admin: ClusterAdmin,
  question: ImageQuestion,
  init: ImageCheckInit,
): Promise<readonly string[]> {
  const { signal, say, dryRun } = init
  const plan = planImageCheck(question, {
    nodes: await listIfAllowed(admin, 'v1', 'Node', signal),
    pods: await listIfAllowed(admin, 'v1', 'Pod', signal, { labelSelector: OURS }),
    secrets: await presentSecrets(admin, question, signal),
    namespaceThere: await namespaceThere(admin, question, signal),
  })
  for (const note of plan.notes) say(`  image: ${note}\n`)
  if (dryRun || plan.probe.length === 0 || plan.problems.length > 0) return plan.problems
  say(`asking ${nodeList(plan.probe)} for image ${formatImageName(question.image)}\n`)
  const { refused, silent } = await askNodes(admin, { question, nodes: plan.probe }, init)
  for (const text of silent) say(`  image: ${text}\n`)
  return [...refused].map(
    ([node, why]) => `no image: node ${node} cannot have ${formatImageName(question.image)}: ${why}`,
  )
}

/** Of a registry that the user has. */
export function imageExample({ image }: ImageQuestion): string {
  return `REGISTRY/sealane:${image.tag}`
}

const OURS = 'app.kubernetes.io/name=sealane'

function namespaceThere(
  admin: Pick<ClusterAdmin, 'get'>,
  { namespace }: ImageQuestion,
  signal: AbortSignal,
): Promise<boolean | undefined> {
  const own = { apiVersion: 'v1', kind: 'Namespace', name: namespace }
  return unlessForbidden(async () => (await admin.get(own, signal)) !== undefined)
}

async function presentSecrets(
  admin: Pick<ClusterAdmin, 'get'>,
  { pullSecrets, namespace }: ImageQuestion,
  signal: AbortSignal,
): Promise<ReadonlySet<string> | undefined> {
  const found = await unlessForbidden(async () => {
    const secrets: (ManifestObject | undefined)[] = []
    for (const name of pullSecrets) {
      secrets.push(await admin.get({ apiVersion: 'v1', kind: 'Secret', namespace, name }, signal))
    }
    return secrets
  })
  return found === undefined ? undefined : new Set(found.flatMap((secret) => secret?.metadata.name ?? []))
}
