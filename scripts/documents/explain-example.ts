/** docs/pictures/explain.txt: `sealane explain` of a call that ends at a dead link, run against two example clusters. */
import { join } from 'node:path'
import { temporaryFolder } from '../../test/support/temporary-folder.ts'
import { type ObjectsByKind, SELF } from '../../test/support/objects/member-facts.ts'
import { clusterWith } from '../../test/cli/status/cluster-with.ts'
import { runCli } from '../../test/cli/run-cli.ts'
import { type Loose, changeLinks } from '../../test/explain/broken-member.ts'
import { memberObjects, pathObjects } from '../../test/explain/path/two-members.ts'
import { mergeKubeconfigs } from '../../test/kube/support/kubeconfig-file.ts'
import { withTeardowns } from './with-teardowns.ts'
import { DOCUMENT_WIDTH } from './wrap-text.ts'

const COMMAND = ['explain', 'shop/front-0', 'db.shop:5432', '--to-context', 'paris']
/** UNREACHABLE. */
const EXIT_CODE = 1
const DOWN = { state: 'down', message: 'no answer to probes: open UDP 4500 at the other gateway' }

/** The command and what it prints, in lines that a document can have. Throws Error if it ends otherwise. */
export function explainExample(): Promise<string> {
  return withTeardowns(async (t) => {
    const files = await Promise.all(
      ([SELF, 'paris'] as const).map(async (id) => {
        const { kubeconfig } = await clusterWith(t, brokenCluster(id))
        return { context: id, path: kubeconfig }
      }),
    )
    const KUBECONFIG = mergeKubeconfigs(join(temporaryFolder(t), 'kubeconfig'), files)
    const { code, stdout, stderr } = await runCli(COMMAND, { env: { KUBECONFIG } })
    if (code !== EXIT_CODE) throw new Error(`it ended with ${code}: ${stderr}${stdout}`)
    return wrapTable(`$ sealane ${COMMAND.join(' ')}\n${stdout}`)
  })
}

/** All that the API server of a cluster has; no link between the two works. */
function brokenCluster(id: typeof SELF | 'paris'): ObjectsByKind {
  const objects = memberObjects(id)
  changeLinks(
    (kind) => (objects[kind] ?? []) as Loose[],
    () => true,
    DOWN,
  )
  const { EndpointSlice, Namespace, Pod = [] } = pathObjects(id)
  return { ...objects, EndpointSlice, Namespace, Pod: [...(objects.Pod ?? []), ...Pod] } as unknown as ObjectsByKind
}

/** Breaks longer lines at a space, and sets the rest in below the last column, or by two spaces outside of the table. */
export function wrapTable(text: string, width = DOCUMENT_WIDTH): string {
  let column = 2
  return text
    .split('\n')
    .flatMap((line) => {
      if (line.startsWith('STEP ')) column = line.lastIndexOf(' ') + 1
      else if (line === '') column = 2
      return wrapLine(line, ' '.repeat(column), width)
    })
    .join('\n')
}

function wrapLine(line: string, indent: string, width: number): readonly string[] {
  const lines: string[] = []
  let rest = line
  while (rest.length > width) {
    const at = rest.lastIndexOf(' ', width)
    if (at <= indent.length) break
    lines.push(rest.slice(0, at).trimEnd())
    rest = `${indent}${rest.slice(at + 1)}`
  }
  return [...lines, rest]
}
