import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { FileCluster } from '../../cluster/files/file-cluster.ts'
import { removeUserObject, writeUserObject } from '../../cluster/files/user-objects.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { CapturingLogger } from '../../runtime/capturing-logger.ts'
import { clusterApiCompliance } from '../compliance/cluster-api.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

clusterApiCompliance(t, async (t) => {
  const folder = temporaryFolder(t)
  const objects = join(folder, 'objects')
  mkdirSync(objects)
  const open = (): FileCluster => {
    const deps = { clock: new SystemClock(), logger: new CapturingLogger() }
    const cluster = new FileCluster(deps, { objects, state: join(folder, 'state') })
    t.teardown(() => cluster.close())
    return cluster
  }
  return {
    api: open(),
    other: open(),
    put: async (object) => {
      await writeUserObject(objects, object)
    },
    drop: async (kind, name, namespace) => {
      removeUserObject(objects, kind, name, namespace)
    },
  }
})
