"""Tables as people have them: well-known ones made again with plausible values, from a seed.

Each is a ``Case``: the file, and what is to be made of it when nobody names a target.
"""

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

WORDS = (
    "free win prize call now claim urgent cash text reply mobile offer hello see you later home "
    "love dinner work today tomorrow thanks meeting sorry bus late good night week movie friend"
).split()
SYLLABLES = ["Bra", "und", "Hei", "kki", "Cum", "ing", "All", "en", "Mo", "ran", "Pal", "sson"]


@dataclass(frozen=True)
class Case:
    """A file, how it is read, and what is expected.

    Args:
        make: gives a header (or None) and rows.
        target: the column that is taken; '' if the reader must ask.
        first: the candidate that must be listed first where it asks; '' if there is none.
        doubt: part of the sentence.
        options: of ``read_table``.
        sign: between fields.
        out: names that must be left out.
        encoding: of the file.
    """

    make: Callable[[np.random.Generator, int], tuple[list[str] | None, list[list[object]]]]
    target: str = ""
    first: str = ""
    doubt: str = ""
    options: dict[str, object] = field(default_factory=dict)
    sign: str = ","
    out: tuple[str, ...] = ()
    encoding: str = "utf-8"
    rows: int = 240

    def content(self) -> bytes:
        header, rows = self.make(np.random.default_rng(7), self.rows)
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.sign, lineterminator="\n")
        writer.writerows([*([header] if header else []), *rows])
        return text.getvalue().encode(self.encoding)


def table(header: str, row: Callable[[np.random.Generator, int], list[object]]):
    """A maker from a header and a function for a row; no header for ''."""

    def make(random, count):
        return header.split(",") if header else None, [row(random, place) for place in range(count)]

    return make


def pick(random, *values):
    return values[int(random.integers(len(values)))]


def odds(random, share, yes="yes", no="no"):
    return yes if random.random() < share else no


def normal(random, mean=0.0, scale=1.0, digits=2):
    return round(float(random.normal(mean, scale)), digits)


def whole(random, low, high):
    return int(random.integers(low, high))


def name(random, place):
    return f"{pick(random, *SYLLABLES)}{pick(random, *SYLLABLES).lower()}{place}, Mr. Owen"


def words(random, low, high):
    return " ".join(pick(random, *WORDS) for _ in range(whole(random, low, high)))


def date(random, form="%Y-%m-%d"):
    day = np.datetime64("2019-01-01") + whole(random, 0, 900)
    return day.astype(object).strftime(form)


def titanic(r, i):
    age = "" if r.random() < 0.2 else whole(r, 1, 70)
    cabin = "" if r.random() < 0.77 else f"C{i}"
    fare, port = round(float(r.lognormal(3, 1)), 4), pick(r, *"SSSCQ")
    return [i + 1, odds(r, 0.4, 1, 0), pick(r, 1, 2, 3, 3), name(r, i), pick(r, "male", "female"),
            age, whole(r, 0, 4), whole(r, 0, 3), f"A/5 {1000 + 7 * i}", fare, cabin, port]  # fmt: skip


def seaborn_titanic(r, i):
    return [odds(r, 0.4, 1, 0), pick(r, 1, 2, 3), pick(r, "male", "female"), whole(r, 1, 70),
            normal(r, 30, 20), pick(r, *"SCQ"), pick(r, "First", "Second", "Third"),
            pick(r, "True", "False")]  # fmt: skip


def telco(r, i):
    return [f"{7000 + i}-VH{chr(65 + i % 26)}EG", pick(r, "Male", "Female"), odds(r, 0.2, 1, 0),
            odds(r, 0.5, "Yes", "No"), whole(r, 0, 72),
            pick(r, "Month-to-month", "One year", "Two year"), normal(r, 65, 30),
            odds(r, 0.27, "Yes", "No")]  # fmt: skip


def telco_places(r, i):
    return [f"{7000 + i}-VHVEG", pick(r, "Male", "Female"), odds(r, 0.27, "Yes", "No"),
            pick(r, "DSL", "Fiber", "No"), normal(r, 34, 2, 6), normal(r, -118, 2, 6)]  # fmt: skip


def adult(r, i):
    return [whole(r, 17, 90), pick(r, " State-gov", " Private", " ?"), whole(r, 20000, 400000),
            pick(r, " Bachelors", " HS-grad"), whole(r, 1, 17), pick(r, " Male", " Female"),
            pick(r, 40, 50, 20), odds(r, 0.24, " >50K", " <=50K")]  # fmt: skip


def iris(r, i):
    return [i + 1, normal(r, 5.8, 0.8, 1), normal(r, 3, 0.4, 1), normal(r, 3.7, 1.7, 1),
            normal(r, 1.2, 0.7, 1), pick(r, "Iris-setosa", "Iris-virginica", "Iris-versicolor")]  # fmt: skip


def red_wine(r, i):
    return [normal(r, 8, 1.7, 1), normal(r, 0.5, 0.2), normal(r, 0.27, 0.2), normal(r, 3.3, 0.2),
            normal(r, 10, 1, 1), pick(r, 3, 4, 5, 5, 5, 6, 6, 7, 8)]  # fmt: skip


def heart(r, i):
    return [whole(r, 29, 77), odds(r, 0.68, 1, 0), whole(r, 0, 4), whole(r, 94, 200),
            normal(r, 1, 1.1, 1), whole(r, 0, 3), odds(r, 0.5, 1, 0)]  # fmt: skip


def cleveland(r, i):
    return [float(whole(r, 29, 77)), odds(r, 0.68, 1.0, 0.0), normal(r, 1, 1.1, 1),
            pick(r, "0.0", "1.0", "2.0", "?"), pick(r, "3.0", "6.0", "7.0"), whole(r, 0, 5)]  # fmt: skip


def bank(r, i):
    return [whole(r, 18, 90), pick(r, "admin.", "technician", "services"), odds(r, 0.02),
            whole(r, -500, 9000), pick(r, "may", "jun", "jul"), whole(r, 10, 900), odds(r, 0.12)]  # fmt: skip


def mushrooms(r, i):
    return [odds(r, 0.48, "p", "e"), pick(r, *"xbsfkc"), pick(r, *"syfg"), pick(r, *"nywgeb"),
            pick(r, *"alcyfmnps"), pick(r, *"dgmpuw")]  # fmt: skip


def penguins(r, i):
    return [pick(r, "Adelie", "Gentoo", "Chinstrap"), pick(r, "Biscoe", "Dream", "Torgersen"),
            normal(r, 44, 5, 1), normal(r, 17, 2, 1), whole(r, 172, 231), pick(r, "male", "female", "NA")]  # fmt: skip


def palmer(r, i):
    return [*penguins(r, i), pick(r, 2007, 2008, 2009)]


def diamonds(r, i):
    return [normal(r, 0.8, 0.4), pick(r, "Ideal", "Premium", "Good", "Fair"), pick(r, *"DEFGHIJ"),
            pick(r, "SI1", "VS2"), whole(r, 326, 18000), normal(r, 5.7, 1), normal(r, 3.5, 0.7)]  # fmt: skip


def houses(r, i):
    return [i + 1, pick(r, 20, 60, 50), pick(r, "RL", "RM"), whole(r, 1300, 20000),
            whole(r, 1900, 2010), whole(r, 35000, 700000)]  # fmt: skip


def spam(r, i):
    return [odds(r, 0.13, "spam", "ham"), words(r, 6, 25), "", "", ""]


def reviews(r, i):
    return [i, words(r, 8, 40), odds(r, 0.7, "positive", "negative")]


def attrition(r, i):
    return [whole(r, 18, 60), odds(r, 0.16, "Yes", "No"), pick(r, "Sales", "HR", "Research"),
            whole(r, 1, 30), 1, i * 2 + 1, pick(r, 1, 2, 3, 4), whole(r, 0, 18)]  # fmt: skip


def glass(r, i):
    return [i + 1, normal(r, 1.52, 0.003, 5), normal(r, 13.4, 0.8), normal(r, 0, 0.5),
            pick(r, 1, 2, 3, 5, 6, 7)]  # fmt: skip


def wine(r, i):
    return [1 + i * 3 // 240, normal(r, 13, 0.8), normal(r, 2.3, 1), normal(r, 1, 0.2),
            whole(r, 278, 1680)]  # fmt: skip


def wdbc(r, i):
    return [
        842302 + 71 * ((i * 97) % 240),
        odds(r, 0.37, "M", "B"),
        *(normal(r, 14, 3, 3) for _ in range(8)),
    ]


def car(r, i):
    return [pick(r, "vhigh", "high", "med", "low"), pick(r, "2", "3", "4", "5more"),
            pick(r, "2", "4", "more"), pick(r, "small", "med", "big"), pick(r, "low", "high"),
            pick(r, "unacc", "unacc", "acc", "good")]  # fmt: skip


def balance(r, i):
    return [pick(r, *"LBR"), *(whole(r, 1, 6) for _ in range(4))]


def letters(r, i):
    return [chr(65 + whole(r, 0, 26)), *(whole(r, 0, 16) for _ in range(16))]


def votes(r, i):
    return [pick(r, "republican", "democrat"), *(pick(r, *"yyynnn?") for _ in range(8))]


def pendigits(r, i):
    return [*(whole(r, 0, 101) for _ in range(8)), whole(r, 0, 10)]


def zoo(r, i):
    return [f"animal{i}", *(whole(r, 0, 2) for _ in range(6)), pick(r, 0, 2, 4, 6), whole(r, 1, 8)]


def liver(r, i):
    return [
        whole(r, 4, 90),
        pick(r, "Male", "Female"),
        normal(r, 3, 2, 1),
        whole(r, 60, 2000),
        pick(r, 1, 2),
    ]


def ionosphere(r, i):
    return [odds(r, 0.9, 1, 0), *(normal(r, 0, 0.5, 5) for _ in range(8)), odds(r, 0.64, "g", "b")]


def shop(r, i):
    return [date(r), date(r, "%d.%m.%Y"), date(r, "%d/%m/%Y 12:30"), whole(r, 1, 9),
            odds(r, 0.3, "True", "False")]  # fmt: skip


def shop_dated_last(r, i):
    return [whole(r, 1, 9), odds(r, 0.3, "True", "False"), normal(r), date(r)]


def indexed_last(r, i):
    return [normal(r), normal(r), pick(r, *"abc"), i]


def french(r, i):
    return [
        pick(r, "Besançon", "Orléans", "Nîmes"),
        normal(r),
        whole(r, 0, 90),
        odds(r, 0.5, "oui", "non"),
    ]


def twice(r, i):
    return [normal(r), normal(r), normal(r), pick(r, *"xyz")]


def pima(r, i):
    return [
        whole(r, 0, 15),
        whole(r, 50, 200),
        normal(r, 32, 7, 1),
        normal(r, 0.5, 0.3, 3),
        odds(r, 0.35, 1, 0),
    ]


def coded(r, i):
    return [normal(r), normal(r), odds(r, 0.3, 1, 0), normal(r), normal(r, 50, 9, 3)]


def weather(r, i):
    return [date(r), normal(r, 20, 6, 1), odds(r, 0.2, "Yes", "No"), odds(r, 0.22, "Yes", "No")]


def numbers_first(r, i):
    return [whole(r, 0, 10), *(whole(r, 0, 256) for _ in range(12))]


def wells(r, i):
    return [f"W{i}", *(words(r, 1, 2) for _ in range(2)), pick(r, "functional", "broken", "repair")]


def forest_fires(r, i):
    return [whole(r, 1, 10), whole(r, 2, 10), pick(r, "mar", "aug"), pick(r, "fri", "sat"), normal(r, 90, 5, 1),
            round(float(r.lognormal(1, 2)), 2)]  # fmt: skip


def fraud(r, i):
    return [
        round(i * 1.5, 1),
        *(normal(r, digits=6) for _ in range(5)),
        normal(r, 88, 60),
        odds(r, 0.1, 1, 0),
    ]


def genes(r, i):
    return [pick(r, *"+-"), normal(r), f"gene{i}", "".join(pick(r, *"acgt") for _ in range(57))]


def staff(r, i):
    return [normal(r, 0.6, 0.2), whole(r, 2, 8), odds(r, 0.24, 1, 0), odds(r, 0.1, 1, 0),
            pick(r, "sales", "hr"), pick(r, "low", "medium", "high")]  # fmt: skip


def bare_mushrooms(r, i):
    return [odds(r, 0.48, "p", "e"), *(pick(r, *"xbsfkc") for _ in range(5)), pick(r, *"dgmpuw")]


def plants(r, i):
    return [normal(r), normal(r), normal(r), f"species {i % 80}"]


def few(r, i):
    return [normal(r), normal(r), normal(r, digits=6)]


CASES = {
    # called like a target, elsewhere
    "titanic": Case(
        table("PassengerId,Survived,Pclass,Name,Sex,Age,SibSp,Parch,Ticket,Fare,Cabin,Embarked", titanic),
        first="Survived", doubt="'Survived' is called like a target", out=("PassengerId", "Name", "Ticket"),
    ),
    "titanic of seaborn": Case(
        table("survived,pclass,sex,age,fare,embarked,class,alone", seaborn_titanic), first="survived",
        doubt="'survived' is called like a target",
    ),
    "mushrooms": Case(
        table("class,cap-shape,cap-surface,cap-color,odor,habitat", mushrooms), first="class",
        doubt="'class' is called like a target",
    ),
    "penguins": Case(
        table("species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,sex", penguins), first="species",
    ),
    "penguins with years": Case(
        table("species,island,bill_length_mm,bill_depth_mm,flipper_length_mm,sex,year", palmer), first="species",
    ),
    "attrition": Case(
        table("Age,Attrition,Department,Distance,EmployeeCount,EmployeeNumber,Job,YearsWithCurrManager", attrition),
        first="Attrition", out=("EmployeeNumber", "EmployeeCount"),
    ),
    "digits, label first": Case(
        table("label," + ",".join(f"pixel{i}" for i in range(12)), numbers_first), first="label",
    ),
    # a last column that holds no classes
    "churn with places": Case(
        table("CustomerID,Gender,Churn,Internet,Latitude,Longitude", telco_places), first="Churn",
        doubt="regression", out=("CustomerID",),
    ),
    "diamonds": Case(table("carat,cut,color,clarity,price,x,z", diamonds), first="clarity", doubt="regression"),
    "house prices": Case(
        table("Id,MSSubClass,MSZoning,LotArea,YearBuilt,SalePrice", houses), first="MSSubClass", doubt="regression",
    ),
    "forest fires": Case(table("X,Y,month,day,temp,area", forest_fires), first="month", doubt="regression"),
    "mails": Case(table("v1,v2,,,", spam), first="v1", doubt="is empty", options={"encoding": "latin-1"}),
    "mails, text last": Case(
        table("label,text", lambda r, i: spam(r, i)[:2]), first="label", doubt="free text",
    ),
    "dates last": Case(table("n,bought,x,when", shop_dated_last), first="bought", doubt="holds dates"),
    "index last": Case(table("a,b,group,", indexed_last), first="group", doubt="numbers the rows"),
    "id last": Case(table("a,b,group,Id", indexed_last), first="group", doubt="an identifier"),
    "wine": Case(table("", wine), first="column 1", doubt="regression", options={"header": False}),
    "wdbc": Case(table("", wdbc), first="column 2", doubt="regression", options={"header": False}, out=("column 1",)),
    "0 and 1 in the middle": Case(table("a,b,hit,c,d", coded), first="hit", doubt="regression"),
    "promoters": Case(table("", genes), first="column 1", options={"header": False}),
    "mushrooms, bare": Case(table("", bare_mushrooms), first="column 1", options={"header": False},
                            doubt="two classes that no other column has"),
    "staff": Case(table("satisfaction,projects,left,promoted,Department,salary", staff), first="left"),
    "few rows of numbers": Case(table("a,b,y", few), doubt="15 different numbers in 15 rows", rows=15),
    "numbers in parts": Case(
        table("a,kind,c,dose", lambda r, i: [normal(r), pick(r, *"pq"), normal(r), pick(r, 0.5, 1, 2.5)]),
        first="kind", doubt="not whole",
    ),
    "credit": Case(
        table("Creditability,Duration,Purpose,Foreign", lambda r, i: [odds(r, 0.7, 1, 0), whole(r, 4, 70),
              whole(r, 0, 10), pick(r, 1, 2)]), first="Creditability",
    ),
    # the odd one out
    "balance scale": Case(table("", balance), first="column 1", options={"header": False}),
    "letters": Case(table("", letters), first="column 1", options={"header": False}, rows=600),
    "votes": Case(table("", votes), first="column 1", options={"header": False}),
    # the last one is it
    "telco": Case(
        table("customerID,gender,Senior,Partner,tenure,Contract,MonthlyCharges,Churn", telco), "Churn",
        out=("customerID",),
    ),
    "adult": Case(table("", adult), "column 8", options={"header": False}),
    "adult, named": Case(table("age,workclass,fnlwgt,education,num,sex,hours,income", adult), "income"),
    "iris with Id": Case(
        table("Id,SepalLengthCm,SepalWidthCm,PetalLengthCm,PetalWidthCm,Species", iris), "Species", out=("Id",),
    ),
    "iris with pandas' index": Case(table(",a,b,c,d,variety", iris), "variety", out=("column 1",)),
    "wine quality": Case(
        table("fixed acidity,volatile acidity,citric acid,pH,alcohol,quality", red_wine), "quality", sign=";",
    ),
    "heart": Case(table("age,sex,cp,trestbps,oldpeak,ca,target", heart), "target"),
    "heart of Cleveland": Case(table("", cleveland), "column 6", options={"header": False}),
    "bank": Case(table("age,job,default,balance,month,duration,y", bank), "y", sign=";"),
    "reviews": Case(table("id,review,sentiment", reviews), "sentiment", out=("id",)),
    "glass": Case(table("", glass), "column 5", options={"header": False}, out=("column 1",)),
    "car": Case(table("", car), "column 6", options={"header": False}),
    "car, named": Case(table("buying,doors,persons,lug_boot,safety,class", car), "class"),
    "pen digits": Case(table("", pendigits), "column 9", options={"header": False}),
    "zoo": Case(table("", zoo), "column 9", options={"header": False}, out=("column 1",)),
    "liver": Case(table("", liver), "column 5", options={"header": False}),
    "ionosphere": Case(table("", ionosphere), "column 10", options={"header": False}),
    "pima": Case(table("Pregnancies,Glucose,BMI,Pedigree,Outcome", pima), "Outcome"),
    "pima, bare": Case(table("", pima), "column 5", options={"header": False}),
    "many species": Case(table("a,b,c,kind", plants), "kind"),
    "weather": Case(table("Date,Temp,RainToday,RainTomorrow", weather), "RainTomorrow"),
    "wells": Case(table("id,funder,installer,status_group", wells), "status_group", out=("id",)),
    "fraud": Case(table("Time,V1,V2,V3,V4,V5,Amount,Class", fraud), "Class"),
    "dates": Case(table("signup,birth,last seen,n,bought", shop), "bought"),
    "Latin-1": Case(table("ville,x,n,réponse", french), "réponse", encoding="latin-1"),
    "a name twice": Case(table("nitre,nitre,nitre,kind", twice), "kind"),
}  # fmt: skip
