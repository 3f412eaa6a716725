/** One leaves, and then everything goes. */
import { dumpDifference, dumpObjects } from '../../../test/kube/support/object-dump.ts'
import { dumpNode, sealaneFiles } from '../../../test/kube/support/node-dump.ts'
import { join } from 'node:path'
import { expectEqual } from '../../checks/world.ts'
import { until } from '../../until.ts'
import { type Check, type Member, type World, memberOf } from '../member.ts'
import { leaveWords, uninstallWords } from '../readme-commands.ts'
import { NAMESPACE } from '../shop.ts'
import { connectionText, everybodyCallsEverybody, ownHost, shortened, untilStatus, wantedText } from './ask.ts'

const leaves: Check = {
  name: 'c2 leaves: removed in the others, its node as before',
  async run(world) {
    const { members, commands } = world
    const c2 = memberOf(world, 'c2')
    const rest = members.filter((member) => member !== c2)
    const began = performance.now()
    const leaving = commands.type(leaveWords('c2'))
    leaving.catch(() => undefined)
    await untilStatus(rest, ownHost('c2'), 'NXDOMAIN', 60_000)
    const gone = performance.now() - began
    await leaving
    const left = performance.now() - began
    expectSameKernels(world, c2)
    await everybodyCallsEverybody(rest)
    for (const member of rest) {
      const wanted = await wantedText(
        member,
        rest.filter((one) => one !== member),
      )
      await until(`${member.name} to have links to those that stay`, 20_000, async () => {
        const said = await connectionText(world, member.name)
        return said === wanted ? true : said
      })
    }
    const seconds = (ms: number): string => `${(ms / 1000).toFixed(1)} s`
    return `its names are gone ${seconds(gone)} after the command began, which took ${seconds(left)}; rules, routes, devices and switches equal`
  },
}

const nothingIsLeft: Check = {
  name: 'uninstall: objects, kernels and files of all clusters are as before',
  async run(world) {
    for (const { api } of world.members) {
      // "kubectl -n shop delete serviceexports --all": the CRDs of the standard stay while somebody uses them.
      await api.raw('DELETE', `/apis/multicluster.x-k8s.io/v1beta1/namespaces/${NAMESPACE}/serviceexports`)
    }
    for (const { name } of [...world.members].reverse()) await world.commands.type(uninstallWords(name))
    let objects = 0
    for (const member of world.members) {
      await until(`the objects of ${member.name} to be as before`, 60_000, async () => {
        const now = await dumpObjects(member.api)
        const difference = dumpDifference(member.objects, now).filter((line) => !isVolume(line))
        objects += difference.length === 0 ? now.size : 0
        return difference.length === 0 ? true : shortened(difference)
      })
      expectSameKernels(world, member)
    }
    return `${objects} objects compared, ${world.members.flatMap(({ cluster }) => cluster.nodes).length} nodes`
  },
}

/** The claim is gone; what becomes of the volume behind it is the storage's to say. */
function isVolume(line: string): boolean {
  return line.startsWith('~ /api/v1/persistentvolumes ')
}

function expectSameKernels({ directory }: World, { name, cluster, kernels }: Member): void {
  for (const node of cluster.nodes) {
    const [before, after] = [linesOf(kernels.get(node.name) ?? ''), linesOf(dumpNode(node))]
    const added = after.filter((line) => !before.includes(line)).map((line) => `+${line}`)
    const lost = before.filter((line) => !after.includes(line)).map((line) => `-${line}`)
    if (added.length + lost.length > 0) {
      throw new Error(`${node.name} differs: ${shortened([...added, ...lost])}`)
    }
    expectEqual(`files of Sealane on ${node.name}`, sealaneFiles(join(directory, name), node.name), [])
  }
}

function linesOf(text: string): readonly string[] {
  return text.split('\n').filter((line) => line.trim() !== '')
}

export const leaveChecks: readonly Check[] = [leaves, nothingIsLeft]
