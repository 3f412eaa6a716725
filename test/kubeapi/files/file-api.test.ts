import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { FileApi } from '../../../kubeapi/files/file-api.ts'
import { removeUserObject, writeUserObject } from '../../../kubeapi/files/user/user-objects.ts'
import { SystemClock } from '../../../reconcile/clock.ts'
import { CapturingLogger, type LogLine } from '../../../runtime/logging/capturing-logger.ts'
import { clusterApiCompliance } from '../../compliance/cluster-api.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

clusterApiCompliance(t, async (t) => {
  const folder = temporaryFolder(t)
  const objects = join(folder, 'objects')
  mkdirSync(objects)
  const logger = new CapturingLogger()
  const open = (): FileApi => {
    const deps = { clock: new SystemClock(), logger }
    const api = new FileApi(deps, { objects, state: join(folder, 'state') })
    t.teardown(() => api.close())
    return api
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
    reported: async () => logger.lines.flatMap(asEvent),
  }
})

/** The event in the form that the compliance suite expects: `warn ServiceExport shop/web: the note {reason}`. */
function asEvent({ level, message, fields }: LogLine): string[] {
  const note = /^ServiceExport \S+: (.*)$/.exec(message)?.[1]
  return note === undefined ? [] : [`${level === 'warn' ? 'Warning' : 'Normal'} ${String(fields['reason'])}: ${note}`]
}
