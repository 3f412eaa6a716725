/** Whether the CustomResourceDefinitions are as new as the command, and what other products they show. */
import type { Finding } from '../../finding.ts'
import { partVersions } from '../../overview/part-versions.ts'
import { type World, named, seenAt } from '../../world.ts'

export function definitions(world: World): readonly Finding[] {
  return [...outdated(world), ...products(world)]
}

/** One finding: they are brought up to date together. */
function outdated(world: World): readonly Finding[] {
  const { probes, selfSubject } = world
  const { definition = [] } = probes
  const older = definition.filter(({ object }) => object.isOlder)
  const [first] = older
  if (first === undefined) return []
  const texts = older.map(
    ({ object: { name, found, expected } }) => `${name} is ${found}, and this command has ${expected}`,
  )
  const seen = named(texts, 3)
  // That this command is newer than the whole cluster makes no cluster unwell.
  const severity = isUsed(world) ? 'degraded' : 'notice'
  return [{ reason: 'DefinitionOutdated', severity, subject: selfSubject, seen, ...seenAt(first) }]
}

/** Some part of the cluster is of the release of this command. */
function isUsed(world: World): boolean {
  const all = partVersions(world)
  const own = new Set(all.flatMap(({ part, version }) => (part === 'cli' ? [version] : [])))
  return all.some(({ part, version }) => part !== 'cli' && own.has(version))
}

function products({ probes: { 'other-product': all = [] } }: World): readonly Finding[] {
  return all.map((one) => ({
    reason: 'OtherProduct',
    severity: 'degraded',
    subject: { kind: 'Product', name: one.object.name },
    seen: `its CustomResourceDefinition ${one.object.crd} is in this cluster`,
    ...seenAt(one),
  }))
}
