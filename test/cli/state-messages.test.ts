/** The messages about a state folder that cannot be used. */
import { mkdirSync, rmdirSync } from 'node:fs'
import t from 'tap'
import { runCli } from './run-cli.ts'
import { SiteFolder } from './site-folder.ts'
import { clusterObject } from '../support/objects/cluster-objects.ts'

t.test('state that cannot be used', async (t) => {
  const site = new SiteFolder(t)
  site.write('state', 'a file where a folder should be')
  const show = ['show', 'clusters', '--site', site.file]
  const { code, stderr } = await runCli(show)
  const state = site.path('state')
  t.equal(
    stderr,
    `sealane: ${state}: cannot be used as state folder (spec.state of ${site.file}): EEXIST: file already exists, mkdir '${state}'\n`,
  )
  t.equal(code, 1)

  site.remove('state')
  mkdirSync(site.path('state/objects/Cluster/_'), { recursive: true })
  site.write('state/objects/Cluster/_/paris.json', '{"kind": "Clu')
  const milano = clusterObject({ id: 'milano', podCIDRs: ['10.42.0.0/16'] })
  site.write('state/objects/Cluster/_/milano.json', JSON.stringify(milano))
  const paris = site.path('state/objects/Cluster/_/paris.json')
  t.same(await runCli(show), {
    code: 1,
    stdout: 'CLUSTER  PODS          GLOBAL  SERVICES  LABELS\nmilano   10.42.0.0/16  -       -         -\n',
    stderr:
      `sealane: a state file is damaged and ignored: ${paris}: Unterminated string in JSON at position 13 (line 1 column 14)\n` +
      'sealane: the state in one place could not be read: it is not shown\n',
  })

  site.remove('state/objects/Cluster/_/milano.json')
  site.remove('state/objects/Cluster/_/paris.json')
  rmdirSync(site.path('state/objects/Cluster/_'))
  rmdirSync(site.path('state/objects/Cluster'))
  site.write('state/objects/Cluster', 'in the way')
  const folder = site.path('state/objects/Cluster')
  t.same(await runCli(show), {
    code: 1,
    stdout: '',
    stderr:
      `sealane: cannot use the state folder: ${folder}: EEXIST: file already exists, mkdir '${folder}'\n` +
      `sealane: cannot use the state folder: ${folder}: not a folder\n` +
      'none\n' +
      'sealane: the state in one place could not be read: it is not shown\n',
  })
})
