/** `npm run docs:metrics`: writes docs/metrics.md from the metrics that the components declare. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { metricsDocument } from './metrics-document.ts'

writeFileSync(join(import.meta.dirname, '..', '..', 'docs', 'metrics.md'), metricsDocument())
