"""One untrained student of each species for all tests of this folder."""

from pathlib import Path

import pytest

from longtake.training.student import Student
from longtake.training.zoo import ZOO


def fresh(name: str) -> Student:
    student = Student.new(ZOO[name], seed=0)
    student.model.eval()
    return student


@pytest.fixture(scope="session")
def hybrid() -> Student:
    return fresh("toy")


@pytest.fixture(scope="session", params=ZOO)
def student(request: pytest.FixtureRequest) -> Student:
    return fresh(request.param)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, student: Student) -> Path:
    path = tmp_path_factory.mktemp(student.species.name)
    student.model.save_pretrained(path)
    student.processor.save_pretrained(path)
    return path
