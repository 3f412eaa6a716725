/** The README's commands on three clusters, and the checks. */
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { exportService } from '../../test/kube/support/service-imports.ts'
import { tokenIn } from '../../test/kube/support/token-text.ts'
import { SEALANE_IMAGE } from '../../test/kube/support/two-clusters.ts'
import type { Report } from '../report.ts'
import { runCheck } from '../run-check.ts'
import { callChecks, servicesAreKnown } from './checks/calls.ts'
import { leaveChecks } from './checks/leave.ts'
import { lifeChecks } from './checks/life.ts'
import { type World, clusterRows, startWorld } from './member.ts'
import { DEPLOY, TOKEN, TOKEN_FILE, joinWords } from './readme-commands.ts'
import { NAMESPACE, exportsOf } from './shop.ts'

export interface StoryOptions {
  /** Exists; its path is short. Everything lies in it. */
  readonly directory: string
  readonly flat: boolean
  /** Nobody leaves. */
  readonly keep: boolean
}

/** Throws when it cannot go on; a check that fails goes into the report. Gives the world, which goes on running. */
export async function reportStory(options: StoryOptions, report: Report): Promise<World> {
  const { directory, flat, keep } = options
  const say = (line: string): void => report.step(line)
  const ranges = clusterRows(flat).map(({ name, podCIDR }) => `${name} ${podCIDR}`)
  say(`starting three clusters (etcd, kube-apiserver, controllers, kube-proxy, CoreDNS), pods: ${ranges.join(', ')}`)
  const world = await startWorld({ directory, flat, say })
  say(`they run; there is no registry here: the image ${SEALANE_IMAGE} is this checkout, run by a test kubelet`)
  await joinAll(world)
  say('a ServiceExport for web, web-CLUSTER and db in each, as "kubectl -n shop apply" would')
  for (const member of world.members) {
    for (const name of exportsOf(member.name)) await exportService(member, NAMESPACE, name)
  }
  await servicesAreKnown(world)
  say('every name is known everywhere')
  const checks = [...callChecks, ...lifeChecks, ...(keep ? [] : leaveChecks)]
  for (const check of checks) await runCheck(world, check, report)
  return world
}

/** A broker on the first, then a token and a join for each. */
async function joinAll({ commands, directory, members }: World): Promise<void> {
  await commands.type(DEPLOY)
  for (const { name } of members) {
    const { stdout } = await commands.type(TOKEN)
    await writeFile(join(directory, TOKEN_FILE), tokenIn(stdout), { mode: 0o600 })
    await commands.type(joinWords(name))
  }
}
