import t from 'tap'
import { openMemoryLog } from '../../broker/store/memory-log.ts'
import { recordLogCompliance } from '../compliance/record-log.ts'

recordLogCompliance(t, { open: (init) => openMemoryLog(init) })
