/**
 * The parts of the Kubernetes demo that can be tested without clusters: which clusters it keeps, the commands that it
 * runs, and the addresses of the clusters.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { clusterRows } from '../../demo/kube/member.ts'
import { DEPLOY, TOKEN, joinWords, leaveWords } from '../../demo/kube/readme-commands.ts'
import { FOLDER_PREFIX, KEEPER, findKept, pidFile, sweepKept } from '../../demo/kube/kept-clusters.ts'
import { overlaps, parsePrefix } from '../../model/values/ip.ts'
import { ROOT } from '../support/source-tree.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.test('only a living keeper of that very folder counts, and is ended', async (t) => {
  const before = process.env['TMPDIR']
  const root = temporaryFolder(t)
  process.env['TMPDIR'] = root
  t.teardown(() => {
    if (before === undefined) delete process.env['TMPDIR']
    else process.env['TMPDIR'] = before
  })
  const folder = (name: string, pid?: number): string => {
    const path = join(root, `${FOLDER_PREFIX}${name}`)
    mkdirSync(path)
    if (pid !== undefined) writeFileSync(pidFile(path), String(pid))
    return path
  }
  const running = folder('without-keeper')
  const stale = folder('stale', process.pid)
  t.strictSame(findKept(), [], 'not a process that is something else')

  const kept = folder('kept')
  const waits = ['--eval', 'setInterval(() => undefined, 1e6)']
  const keeper = spawn(process.execPath, [...waits, '--', KEEPER, kept], { stdio: 'ignore' })
  t.teardown(() => keeper.kill('SIGKILL'))
  await once(keeper, 'spawn')
  writeFileSync(pidFile(kept), String(keeper.pid))
  t.strictSame(findKept(), [{ directory: kept, pid: keeper.pid }])

  const ended = once(keeper, 'exit')
  t.equal(await sweepKept(), 1)
  await ended
  t.notOk(existsSync(kept), 'its folder is gone')
  t.notOk(existsSync(stale), 'so is what a dead keeper has left')
  t.ok(existsSync(running), 'a demo that just runs is left alone')
  t.equal(await sweepKept(), 0, 'a second time there is nothing')
})

t.test('what is typed stands in the README', async (t) => {
  const readme = readFileSync(join(ROOT, 'README.md'), 'utf8')
  for (const words of [DEPLOY, TOKEN, joinWords('c1'), leaveWords('c1')]) {
    const typed = `sealane ${words.replace(/ --(image|service-type) \S+| --yes/g, '')}`
    t.ok(readme.includes(typed), typed)
  }
})

t.test('ranges: all overlap, or with --flat none does', async (t) => {
  const ranges = (flat: boolean): readonly string[] =>
    clusterRows(flat).flatMap(({ podCIDR, serviceCIDR }) => [podCIDR, serviceCIDR])
  t.equal(new Set(ranges(false)).size, 2)
  const flat = ranges(true).map((text) => parsePrefix(text))
  const pairs = flat.flatMap((a, i) => flat.slice(i + 1).map((b) => [a, b] as const))
  t.notOk(pairs.some(([a, b]) => overlaps(a, b)))
})
